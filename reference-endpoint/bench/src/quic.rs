//! QUIC by quinn: one connection, one stream of messages one after the other.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::congestion::{BbrConfig, CubicConfig};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::rustls;
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, ServerConfig, TokioRuntime, TransportConfig, VarInt,
};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot::Receiver;

use crate::party::{Bulk, Figures, Ready, Said, Window, say};
use crate::plain::BUFFER;

/// Name in the certificate.
const NAME: &str = "localhost";

/// Largest datagram with which quinn can use offload, bytes: it sends rows of ten whatever their size, and the system
/// takes 65,507 bytes at a time. With larger ones it loses every full row.
pub const LARGEST_WITH_OFFLOAD: usize = 65_507 / 10;

/// Smallest largest datagram that QUIC has, bytes (RFC 9000).
const SMALLEST: usize = 1200;
/// Bytes of a full datagram that are not of the stream: short header with the connection id, stream frame, tag.
const OVERHEAD: usize = 1 + 8 + 2 + 1 + 1 + 4 + 16;

/// UDP payload of the datagrams of quinn where so much is asked for.
pub fn datagram(asked: usize) -> usize {
    asked.max(SMALLEST)
}

/// Bytes of the stream in such a datagram.
pub fn payload(asked: usize) -> usize {
    datagram(asked) - OVERHEAD
}

/// Congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// RFC 9438.
    Cubic,
    /// BBR, as quinn has it.
    Bbr,
}

/// How quinn is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Congestion control.
    pub control: Control,
    /// Congestion window at first, bytes.
    pub initial_window: u64,
    /// Bytes under way that the receiver allows and the sender keeps.
    pub window: u32,
    /// Segmentation offload.
    pub offload: bool,
    /// Packets after which the receiver acknowledges, where it is not the usual two.
    pub acks: Option<u32>,
}

impl Tuning {
    /// What gave the most over loopback among the settings that `goodput --tune` compares.
    pub const BULK: Self = Self {
        control: Control::Cubic,
        initial_window: 1 << 20,
        window: 4 << 20,
        offload: true,
        acks: Some(50),
    };

    /// As quinn comes, but for the size of datagrams.
    pub const DEFAULT: Self = Self {
        control: Control::Cubic,
        initial_window: 14_720,
        window: 1_250_000,
        offload: true,
        acks: None,
    };

    /// For a line with a rate and a delay: quinn's own defaults but for windows that the line does not fill.
    pub fn line(control: Control) -> Self {
        Self {
            control,
            initial_window: 14_720,
            window: 4 << 20,
            offload: true,
            acks: None,
        }
    }

    fn transport(&self, datagram: usize) -> TransportConfig {
        let mut transport = TransportConfig::default();
        let mtu = self::datagram(datagram) as u16;
        transport
            .initial_mtu(mtu)
            .min_mtu(mtu)
            .mtu_discovery_config(None)
            .send_window(u64::from(self.window))
            .receive_window(self.window.into())
            .stream_receive_window(self.window.into())
            .enable_segmentation_offload(self.offload);
        match self.control {
            Control::Cubic => {
                let mut cubic = CubicConfig::default();
                cubic.initial_window(self.initial_window);
                transport.congestion_controller_factory(Arc::new(cubic));
            }
            Control::Bbr => {
                let mut bbr = BbrConfig::default();
                bbr.initial_window(self.initial_window);
                transport.congestion_controller_factory(Arc::new(bbr));
            }
        }
        if let Some(acks) = self.acks {
            let mut frequency = quinn::AckFrequencyConfig::default();
            frequency.ack_eliciting_threshold(acks.into());
            transport.ack_frequency_config(Some(frequency));
        }
        transport
    }
}

/// The cheapest suite that there is on machines with AES.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    let suite = rustls::CipherSuite::TLS13_AES_128_GCM_SHA256;
    provider.cipher_suites.retain(|s| s.suite() == suite);
    Arc::new(provider)
}

fn endpoint(bulk: &Bulk, local: SocketAddr, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    let socket = std::net::UdpSocket::bind(local)?;
    let options = socket2::SockRef::from(&socket);
    let _smaller = options.set_recv_buffer_size(BUFFER);
    let _smaller = options.set_send_buffer_size(BUFFER);
    let mut config = EndpointConfig::default();
    config
        .max_udp_payload_size(datagram(bulk.datagram).max(1472) as u16)
        .map_err(io::Error::other)?;
    Endpoint::new(config, server, socket, Arc::new(TokioRuntime))
}

/// Reads messages to the end of the stream.
///
/// # Errors
/// When the connection fails.
pub async fn receive(
    bulk: &Bulk,
    tuning: &Tuning,
    local: SocketAddr,
    ended: Receiver<()>,
) -> io::Result<Figures> {
    let identity = rcgen::generate_simple_self_signed(vec![NAME.to_owned()]);
    let identity = identity.map_err(io::Error::other)?;
    let certificate = identity.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(identity.signing_key.serialize_der().into());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .map_err(io::Error::other)?;
    tls.max_early_data_size = u32::MAX;
    let tls = QuicServerConfig::try_from(tls).map_err(io::Error::other)?;
    let mut server = ServerConfig::with_crypto(Arc::new(tls));
    server.transport_config(Arc::new(tuning.transport(bulk.datagram)));
    let endpoint = endpoint(bulk, local, Some(server))?;
    say(&Said::Ready(Ready {
        port: endpoint.local_addr()?.port(),
        region: None,
        certificate: Some(certificate.to_vec()),
    }));
    let figures = read_all(bulk, &endpoint).await?;
    endpoint.close(VarInt::from_u32(0), b"");
    // The sender waits for the close; the parent process for both.
    let _over = ended.await;
    Ok(figures)
}

async fn read_all(bulk: &Bulk, endpoint: &Endpoint) -> io::Result<Figures> {
    let incoming = endpoint.accept().await;
    let incoming = incoming.ok_or_else(|| io::Error::other("no connection"))?;
    let connection = incoming.await?;
    let mut stream = connection.accept_uni().await?;
    let mut window = Window::new(bulk);
    // A message is read into its place, as a Write is.
    let mut message = vec![0; bulk.message];
    loop {
        let mut filled = 0;
        while filled < message.len() {
            let rest = message.get_mut(filled..).unwrap_or_default();
            match stream.read(rest).await? {
                Some(count) => {
                    filled += count;
                    window.count(count);
                }
                None => return Ok(window.figures(0)),
            }
        }
    }
}

/// Writes messages until the time of the figures is over.
///
/// # Errors
/// When the connection fails.
pub async fn send(
    bulk: &Bulk,
    tuning: &Tuning,
    local: SocketAddr,
    peer: SocketAddr,
    ready: &Ready,
) -> io::Result<Figures> {
    let certificate = ready.certificate.clone().unwrap_or_default();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from(certificate))
        .map_err(io::Error::other)?;
    let tls = rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = QuicClientConfig::try_from(tls).map_err(io::Error::other)?;
    let mut client = ClientConfig::new(Arc::new(tls));
    client.transport_config(Arc::new(tuning.transport(bulk.datagram)));
    let endpoint = endpoint(bulk, SocketAddr::new(local.ip(), 0), None)?;
    let connecting = endpoint.connect_with(client, peer, NAME);
    let connection = connecting.map_err(io::Error::other)?.await?;
    let mut stream = connection.open_uni().await?;

    let message = bytes_of(bulk.message);
    let mut window = Window::new(bulk);
    let all = Duration::from_millis(bulk.warm_ms + bulk.time_ms + 200);
    let start = Instant::now();
    while start.elapsed() < all {
        // Not copied: the stream keeps a reference until it is acknowledged.
        stream.write_chunk(message.clone()).await?;
        window.count(message.len());
    }
    let figures = window.figures(0);
    stream.finish().map_err(io::Error::other)?;
    // The receiver closes when it has read all.
    let _closed = connection.closed().await;
    endpoint.wait_idle().await;
    Ok(figures)
}

fn bytes_of(len: usize) -> bytes::Bytes {
    vec![0x5a; len].into()
}
