//! Connection management: queue pairs between the same two endpoints are streams of one connection, as far as the agreed
//! number goes.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use super::device::Device;
use super::error::Error;
use super::qp::{Attach, Destination, Modify};
use super::types::{AsyncEvent, Qp, QpInit, QpState};
use crate::core::{Misuse, Service, Status, StreamConfig};

/// How often a queue pair looks for another connection when its stream was refused.
const MOST_REFUSALS: u32 = 3;

/// A service as verbs programs want it: 256 queue pairs a connection, 16 Reads and 16 atomic operations at a time, and
/// every feature.
pub fn service(service_id: u32) -> Service {
    Service {
        service_id,
        streams: 256,
        first_streams: 0,
        read_depth: 16,
        atomic_depth: 16,
        ..Service::default()
    }
}

/// What the device offers.
pub(super) struct Listener {
    pub template: QpInit,
    service_id: u32,
    /// Queue pairs that wait for a stream, in turn.
    waiting: VecDeque<Qp>,
}

/// A connection.
struct Link {
    peer: SocketAddr,
    service_id: u32,
    /// It was opened from here.
    own: bool,
    up: bool,
    closing: bool,
    /// Streams that it is known or hoped to carry.
    streams: usize,
    /// Queue pairs that have a stream of it, or wait for one.
    users: usize,
    waiting: VecDeque<Qp>,
}

/// All connections of a device.
#[derive(Default)]
pub(super) struct Connections {
    pub listener: Option<Listener>,
    links: BTreeMap<u32, Link>,
    by_peer: BTreeMap<(SocketAddr, u32), Vec<u32>>,
}

impl Connections {
    fn add(&mut self, conn: u32, link: Link) {
        let key = (link.peer, link.service_id);
        self.by_peer.entry(key).or_default().push(conn);
        self.links.insert(conn, link);
    }

    fn remove(&mut self, conn: u32) -> Option<Link> {
        let link = self.links.remove(&conn)?;
        let key = (link.peer, link.service_id);
        if let Some(all) = self.by_peer.get_mut(&key) {
            all.retain(|other| *other != conn);
            if all.is_empty() {
                self.by_peer.remove(&key);
            }
        }
        Some(link)
    }

    pub(super) fn is_known(&self, conn: u32) -> bool {
        self.links.contains_key(&conn)
    }

    /// Whether a connection is being closed from here.
    pub(super) fn is_closing(&self, conn: u32) -> bool {
        self.links.get(&conn).is_some_and(|link| link.closing)
    }

    /// The connections that are up and not being closed from here.
    pub(super) fn to_close(&self) -> Vec<u32> {
        let links = self.links.iter();
        let open = links.filter(|(_, link)| link.up && !link.closing);
        open.map(|(conn, _)| *conn).collect()
    }

    /// How many connections are up.
    pub(super) fn up(&self) -> usize {
        self.links.values().filter(|link| link.up).count()
    }

    /// Notes that the program closes a connection.
    pub(super) fn closes(&mut self, conn: u32) {
        if let Some(link) = self.links.get_mut(&conn) {
            link.closing = true;
        }
    }
}

impl Device {
    // ---- calls --------------------------------------------------------------------------------------------------

    /// Offers a service: each stream that a peer opens becomes a queue pair made like `template`, unless one waits for it
    /// ([`Destination::Accept`]). [`AsyncEvent::Accepted`] tells of it. `stream` and `first_streams` of the service are not
    /// looked at. Where no queue pair can be made, for their limit or a completion queue that has overrun, the stream is reset.
    ///
    /// Peers that were connected to from here open streams to it too, if it has the number that they were asked for.
    ///
    /// # Errors
    /// What [`Self::create_qp`] refuses; [`Error::InUse`] for a second service; [`Error::Core`].
    pub fn listen(&mut self, template: QpInit, service: Service) -> Result<(), Error> {
        self.check_init(&template)?;
        let service_id = service.service_id;
        if self.connections.listener.is_some() {
            let (what, id, by) = ("the device", service_id, "another service");
            return Err(Error::InUse { what, id, by });
        }
        let config = self.config_of(&template)?;
        self.endpoint.listen(Service {
            first_streams: 0,
            stream: config,
            ..service
        })?;
        self.connections.listener = Some(Listener {
            template,
            service_id,
            waiting: VecDeque::new(),
        });
        self.configure_links(service_id, config);
        Ok(())
    }

    /// Ends the offer. Queue pairs that have a stream keep it, those that wait for one go to ERR.
    pub fn stop_listening(&mut self) {
        self.endpoint.stop_listening();
        if let Some(listener) = self.connections.listener.take() {
            self.configure_links(listener.service_id, StreamConfig::default());
            for qp in listener.waiting {
                self.ended(qp, Status::WrFlushErr, None);
            }
        }
    }

    /// Connects a queue pair in RESET or INIT: through INIT and RTR to RTS, all in one. [`AsyncEvent::Established`] or
    /// [`AsyncEvent::Disconnected`] follows.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Transition`] in another state; [`Error::Overrun`] for a queue pair in RESET one of whose
    /// completion queues has overrun; [`Error::Core`] when the connection cannot be begun.
    pub fn connect(
        &mut self,
        now: u64,
        qp: Qp,
        peer: SocketAddr,
        service: Service,
    ) -> Result<(), Error> {
        let from = self.record(qp)?.state;
        if from == QpState::Reset {
            self.modify_qp(now, qp, Modify::Init)?;
        }
        let to = Destination::Connect { peer, service };
        if let Err(error) = self.modify_qp(now, qp, Modify::Rtr(to)) {
            if from == QpState::Reset {
                self.record_mut(qp)?.state = from;
            }
            return Err(error);
        }
        // It may have failed already.
        if self.record(qp)?.state == QpState::Rtr {
            self.modify_qp(now, qp, Modify::Rts)?;
        }
        Ok(())
    }

    // ---- streams ------------------------------------------------------------------------------------------------

    fn config_of(&mut self, init: &QpInit) -> Result<StreamConfig, Error> {
        let srq = match init.srq {
            Some(srq) => Some(self.srq(srq)?.core),
            None => None,
        };
        Ok(init.stream_config(srq))
    }

    /// Says what the streams get that peers open on connections of a service.
    fn configure_links(&mut self, service_id: u32, config: StreamConfig) {
        let links = self.connections.links.iter();
        let of = links.filter(|(_, link)| link.service_id == service_id);
        for (&conn, _) in of {
            // One that is over has no streams to come.
            let _ = self.endpoint.set_stream_config(conn, config);
        }
    }

    pub(super) fn start(
        &mut self,
        now: u64,
        qp: Qp,
        peer: SocketAddr,
        service: Service,
    ) -> Result<(), Error> {
        self.record_mut(qp)?.target = Some((peer, service));
        let assigned = self.assign(now, qp, None);
        if assigned.is_err() {
            self.record_mut(qp)?.target = None;
        }
        assigned
    }

    /// Gives a queue pair a stream of a connection to its peer and service, other than `except`, or of a new one.
    fn assign(&mut self, now: u64, qp: Qp, except: Option<u32>) -> Result<(), Error> {
        let record = self.record(qp)?;
        let Some((peer, service)) = record.target else {
            return Ok(());
        };
        let init = record.init;
        let config = self.config_of(&init)?;
        let key = (peer, service.service_id);
        let known = self
            .connections
            .by_peer
            .get(&key)
            .cloned()
            .unwrap_or_default();
        for conn in known.into_iter().filter(|conn| Some(*conn) != except) {
            let Some(link) = self.connections.links.get_mut(&conn).filter(|l| !l.closing) else {
                continue;
            };
            if !link.up {
                if link.waiting.len() < link.streams {
                    link.waiting.push_back(qp);
                    self.link(qp, conn, Attach::Waiting(conn));
                    return Ok(());
                }
                continue;
            }
            match self.endpoint.open_stream(now, conn, config) {
                Ok(stream) => {
                    self.by_stream.insert((conn, stream), qp);
                    self.link(qp, conn, Attach::Opening(conn, stream));
                    return Ok(());
                }
                Err(Misuse::Limit { .. } | Misuse::Closing) => {}
                Err(other) => return Err(other.into()),
            }
        }
        let listener = self.connections.listener.as_ref();
        let template = listener
            .filter(|listener| listener.service_id == service.service_id)
            .map(|listener| listener.template);
        let stream = match template {
            Some(template) => self.config_of(&template)?,
            None => StreamConfig::default(),
        };
        let asked = Service {
            first_streams: 0,
            stream,
            ..service
        };
        let conn = self.endpoint.connect(now, peer, asked)?;
        let link = Link {
            peer,
            service_id: service.service_id,
            own: true,
            up: false,
            closing: false,
            streams: usize::from(service.streams),
            users: 0,
            waiting: VecDeque::from([qp]),
        };
        self.connections.add(conn, link);
        self.link(qp, conn, Attach::Waiting(conn));
        Ok(())
    }

    /// Notes that a queue pair uses a connection.
    fn link(&mut self, qp: Qp, conn: u32, attach: Attach) {
        if let Some(link) = self.connections.links.get_mut(&conn) {
            link.users += 1;
        }
        if let Some(record) = self.qps.get_mut(&qp) {
            record.attach = attach;
            record.link = Some(conn);
        }
    }

    /// Notes that a queue pair uses no connection any more.
    pub(super) fn unlink(&mut self, qp: Qp) {
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        let conn = match std::mem::replace(&mut record.attach, Attach::None) {
            Attach::None => return,
            Attach::Accepting => {
                if let Some(listener) = &mut self.connections.listener {
                    listener.waiting.retain(|other| *other != qp);
                }
                return;
            }
            Attach::Waiting(conn) => {
                if let Some(link) = self.connections.links.get_mut(&conn) {
                    link.waiting.retain(|other| *other != qp);
                }
                conn
            }
            Attach::Opening(conn, stream) | Attach::Open(conn, stream) => {
                self.by_stream.remove(&(conn, stream));
                conn
            }
        };
        if let Some(link) = self.connections.links.get_mut(&conn) {
            link.users = link.users.saturating_sub(1);
        }
    }

    /// Closes a connection that was opened from here when its last queue pair has left it.
    pub(super) fn release(&mut self, now: u64, conn: Option<u32>) {
        let Some(conn) = conn else { return };
        let links = &mut self.connections.links;
        if let Some(link) = links.get_mut(&conn)
            && link.own
            && link.up
            && link.users == 0
            && !link.closing
        {
            link.closing = true;
            // Where it is over already there is nothing to close.
            let _ = self.endpoint.close(now, conn);
        }
    }

    /// Lets a queue pair wait for the next stream that a peer opens.
    pub(super) fn wait_for_stream(&mut self, qp: Qp) -> Result<(), Error> {
        let init = self.record(qp)?.init;
        let Some(listener) = &mut self.connections.listener else {
            return Err(Error::Invalid("the device offers no service"));
        };
        let template = &listener.template;
        if (template.pd, template.srq) != (init.pd, init.srq) {
            return Err(Error::Invalid(
                "the listener has another protection domain or shared queue",
            ));
        }
        if template.max_rd_atomic != init.max_rd_atomic {
            return Err(Error::Invalid("the listener has another max_rd_atomic"));
        }
        listener.waiting.push_back(qp);
        self.record_mut(qp)?.attach = Attach::Accepting;
        Ok(())
    }

    // ---- what the core reports ----------------------------------------------------------------------------------

    pub(super) fn on_established(&mut self, now: u64, conn: u32, streams: u16) {
        if let Some(link) = self.connections.links.get_mut(&conn) {
            link.up = true;
            link.streams = usize::from(streams);
            let waiting = std::mem::take(&mut link.waiting);
            for qp in waiting {
                self.unlink(qp);
                self.assign_again(now, qp, None);
            }
            return self.release(now, Some(conn));
        }
        let listener = self.connections.listener.as_ref();
        let service_id = listener.map(|listener| listener.service_id);
        let stats = self.endpoint.connection_stats(conn);
        if let (Some(stats), Some(service_id)) = (stats, service_id) {
            let link = Link {
                peer: stats.peer,
                service_id,
                own: false,
                up: true,
                closing: false,
                streams: usize::from(streams),
                users: 0,
                waiting: VecDeque::new(),
            };
            self.connections.add(conn, link);
        }
    }

    /// Gives a queue pair another stream, or ends it where there is none.
    fn assign_again(&mut self, now: u64, qp: Qp, except: Option<u32>) {
        if self.assign(now, qp, except).is_err() {
            self.ended(qp, Status::RetryExcErr, Some(Status::RetryExcErr));
        }
    }

    pub(super) fn on_stream_opened(&mut self, now: u64, conn: u32, stream: u16) {
        if let Some(&qp) = self.by_stream.get(&(conn, stream)) {
            if let Some(record) = self.qps.get_mut(&qp) {
                record.attach = Attach::Open(conn, stream);
            }
            self.events.push_back(AsyncEvent::Established { qp });
            return self.post_held(now, qp);
        }
        match self.take_acceptor(conn) {
            Some(qp) => {
                self.by_stream.insert((conn, stream), qp);
                self.link(qp, conn, Attach::Open(conn, stream));
                self.events.push_back(AsyncEvent::Accepted { qp });
                self.post_held(now, qp);
            }
            None => {
                // Nobody wants it. Where the connection is over there is nothing to end.
                let _ = self.endpoint.reset_stream(now, conn, stream);
            }
        }
    }

    /// The queue pair for a stream that the peer has opened.
    fn take_acceptor(&mut self, conn: u32) -> Option<Qp> {
        let service_id = self.connections.links.get(&conn)?.service_id;
        let listener = self.connections.listener.as_mut()?;
        if listener.service_id != service_id {
            return None;
        }
        let template = listener.template;
        if let Some(qp) = listener.waiting.pop_front() {
            return Some(qp);
        }
        let full = self.qps.len() >= self.limits.max_qp;
        if full || self.check_cqs(&template).is_err() {
            return None;
        }
        let qp = self.add_qp(template);
        self.qps.get_mut(&qp)?.state = QpState::Rts;
        Some(qp)
    }

    pub(super) fn on_stream_ended(&mut self, now: u64, place: (u32, u16), status: Status) {
        let Some(&qp) = self.by_stream.get(&place) else {
            return;
        };
        let Some(record) = self.qps.get_mut(&qp) else {
            return;
        };
        let opening = matches!(record.attach, Attach::Opening(..));
        // The peer has no room for one more, or both sides have taken the last one: another connection may have it.
        if opening && status == Status::RemInvReqErr && record.refused < MOST_REFUSALS {
            record.refused += 1;
            self.unlink(qp);
            return self.assign_again(now, qp, Some(place.0));
        }
        let first = (opening && status != Status::WrFlushErr).then_some(Status::RetryExcErr);
        self.ended(qp, status, first);
    }

    /// The queue pairs that use a connection, which is gone; those that still wait for a stream of it come first.
    fn take_link(&mut self, conn: u32) -> Vec<Qp> {
        let link = self.connections.remove(conn);
        let mut users: Vec<Qp> = link.into_iter().flat_map(|link| link.waiting).collect();
        let on = self.by_stream.iter().filter(|((of, _), _)| *of == conn);
        let mut open: Vec<Qp> = on.map(|(_, qp)| *qp).collect();
        open.sort_unstable();
        users.extend(open);
        users
    }

    pub(super) fn on_closed(&mut self, now: u64, conn: u32, reason: u16) {
        let own = self.connections.is_closing(conn);
        for qp in self.take_link(conn) {
            let Some(record) = self.qps.get_mut(&qp) else {
                continue;
            };
            let opening = !matches!(record.attach, Attach::Open(..)) && !record.ending && !own;
            if opening && reason == 0 && record.refused < MOST_REFUSALS {
                // The peer has closed it while the stream was on its way.
                record.refused += 1;
                self.unlink(qp);
                self.assign_again(now, qp, None);
            } else {
                self.ended(qp, Status::WrFlushErr, None);
            }
        }
    }

    pub(super) fn on_failed(&mut self, conn: u32, status: Status) {
        let up = self
            .connections
            .links
            .get(&conn)
            .is_some_and(|link| link.up);
        // The oldest work fails with the connection. When there was one, the core has named it.
        let mut first = (!up && status != Status::WrFlushErr).then_some(status);
        for qp in self.take_link(conn) {
            let has_work = self
                .qps
                .get(&qp)
                .is_some_and(|record| !record.sends.is_empty());
            let named = if has_work { first.take() } else { None };
            self.ended(qp, status, named);
        }
    }
}
