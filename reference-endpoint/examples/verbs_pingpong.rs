//! Two programs of the verbs over real sockets that send each other a message in turn, as `ibv_rc_pingpong` does.
//!
//! `cargo run --release -p metaroce-endpoint --example verbs_pingpong -- [ROUNDS [BYTES]]`
//!
//! Each side has a device, a queue pair and a driver of its own, on one of two loopback addresses. What is printed is the
//! time of a round trip as the first side sees it.

use std::error::Error;
use std::net::SocketAddr;

use metaroce_endpoint::core::{Config, Status};
use metaroce_endpoint::udp::{Driver, Pace, Sockets};
use metaroce_endpoint::verbs::{
    AccessFlags, AsyncEvent, Cq, Device, Mr, Qp, QpInit, RecvWr, SendWr, WcOpcode, WrOpcode,
    service,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One side.
struct Player {
    device: Device,
    driver: Driver,
    cq: Cq,
    mr: Mr,
    qp: Option<Qp>,
    bytes: u32,
    /// Sends and receives that are complete.
    sent: u32,
    received: u32,
}

impl Player {
    /// Binds the first of two loopback addresses, or the second on the port of the first.
    fn new(local: SocketAddr, bytes: u32) -> Result<Self> {
        let sockets = Sockets::bind(local)?;
        let local = sockets.locals().next().ok_or("no socket")?;
        let mut driver = Driver::new(Pace::default())?;
        driver.set_sockets(Some(sockets));
        let mut config = Config::new(local);
        config.seed = u64::from(std::process::id()) << 8 | u64::from(local.ip().is_loopback());
        let mut device = Device::new(config)?;
        let (pd, cq) = (device.alloc_pd()?, device.create_cq(64)?);
        let mr = device.reg_mr(pd, bytes as usize, AccessFlags::LOCAL_WRITE)?;
        device.listen(QpInit::new(pd, cq), service(1))?;
        Ok(Self {
            device,
            driver,
            cq,
            mr,
            qp: None,
            bytes,
            sent: 0,
            received: 0,
        })
    }

    fn local(&self) -> Result<SocketAddr> {
        let sockets = self.driver.sockets().ok_or("no socket")?;
        Ok(sockets.locals().next().ok_or("no socket")?)
    }

    fn connect(&mut self, to: SocketAddr) -> Result<()> {
        let pd = self.device.alloc_pd()?;
        self.mr = self
            .device
            .reg_mr(pd, self.bytes as usize, AccessFlags::LOCAL_WRITE)?;
        let qp = self.device.create_qp(QpInit::new(pd, self.cq))?;
        self.device.connect(self.driver.now(), qp, to, service(1))?;
        self.qp = Some(qp);
        self.receive()?;
        self.send()
    }

    fn receive(&mut self) -> Result<()> {
        let qp = self.qp.ok_or("not connected")?;
        let receive = RecvWr::new(0, self.mr.sge(0, self.bytes));
        Ok(self.device.post_recv(self.driver.now(), qp, &[receive])?)
    }

    fn send(&mut self) -> Result<()> {
        let qp = self.qp.ok_or("not connected")?;
        let send = SendWr::new(1, WrOpcode::Send, self.mr.sge(0, self.bytes));
        Ok(self.device.post_send(self.driver.now(), qp, &[send])?)
    }

    /// Takes what has happened; answers every message with one while `answers` says so.
    fn act(&mut self, answers: impl Fn(&Self) -> bool) -> Result<()> {
        while let Some(event) = self.device.poll_event() {
            match event {
                AsyncEvent::Accepted { qp } => {
                    self.qp = Some(qp);
                    self.receive()?;
                }
                AsyncEvent::Disconnected { status, .. } => {
                    return Err(format!("the queue pair has failed: {status:?}").into());
                }
                _ => {}
            }
        }
        for done in self.device.poll_cq(self.cq, 16)? {
            if done.status != Status::Success {
                return Err(format!("{:?} of {}", done.status, done.wr_id).into());
            }
            if done.opcode != WcOpcode::Recv {
                self.sent += 1;
                continue;
            }
            self.received += 1;
            self.receive()?;
            if answers(self) {
                self.send()?;
            }
        }
        Ok(())
    }

    /// Plays until it has sent and received `rounds` messages. The one that begins answers all but the last.
    async fn play(&mut self, rounds: u32, begins: bool) -> Result<()> {
        loop {
            let mut more = self.driver.turn(&mut self.device);
            self.act(|player| !begins || player.received < rounds)?;
            more |= self.driver.turn(&mut self.device);
            if self.sent >= rounds && self.received >= rounds {
                return Ok(());
            }
            self.driver.wait(self.device.poll_timeout(), more).await?;
        }
    }
}

async fn pingpong(rounds: u32, bytes: u32) -> Result<()> {
    let mut first = Player::new("127.0.0.1:0".parse()?, bytes)?;
    let port = first.local()?.port();
    let mut second = Player::new(SocketAddr::new([127, 0, 0, 2].into(), port), bytes)?;
    first.connect(second.local()?)?;
    let start = first.driver.now();
    tokio::try_join!(first.play(rounds, true), second.play(rounds, false))?;
    let each = (first.driver.now() - start) / u64::from(rounds.max(1));
    println!("{rounds} rounds of {bytes} bytes: {} us each", each / 1000);
    Ok(())
}

fn main() -> Result<()> {
    let number = |word: String| word.parse::<u32>().map_err(|e| format!("{word:?}: {e}"));
    let mut numbers = std::env::args().skip(1).map(number);
    let rounds = numbers.next().transpose()?.unwrap_or(10_000);
    let bytes = numbers.next().transpose()?.unwrap_or(4096);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()?;
    runtime.block_on(pingpong(rounds, bytes))
}
