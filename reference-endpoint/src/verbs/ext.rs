//! What the verbs do not have: paths and planes, under names that no program has to know.
//!
//! Units stand with each value: windows are in packets, times in nanoseconds, capacities in Mb/s, sizes in bytes.
//! Set before a connection is opened are [`Config::planes`](crate::core::Config::planes),
//! [`Config::source_ports`](crate::core::Config::source_ports) and
//! [`Config::capacity_mbps`](crate::core::Config::capacity_mbps), and in [`Service`](crate::core::Service) the numbers of
//! paths and planes and the features.

use super::device::Device;
use super::error::Error;
use super::types::Qp;
use crate::core::{ConnectionStats, Counters, PathStats, PlaneStats, StreamStats};

/// Where a queue pair is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Connection.
    pub conn: u32,
    /// Stream of it.
    pub stream: u16,
}

impl Device {
    // ---- what is there ------------------------------------------------------------------------------------------

    /// The connection and stream of a queue pair; none before the stream has been asked for and after it has ended.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn place_of(&self, qp: Qp) -> Result<Option<Place>, Error> {
        self.record(qp)?;
        Ok(self.place(qp).map(|(conn, stream)| Place { conn, stream }))
    }

    /// A connection: state, paths, planes, streams and features agreed, payload size in bytes, packets in flight, window in
    /// packets, the peer's hint in Mb/s, totals of messages and of payload bytes in both directions.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such connection, or it has been over for a while.
    pub fn query_connection(&self, conn: u32) -> Result<ConnectionStats, Error> {
        let stats = self.endpoint.connection_stats(conn);
        stats.ok_or(missing("connection", conn))
    }

    /// A path of the sending direction (VERB-011): source port, plane, epoch, state, window in packets, alpha from 0 to 1,
    /// SRTT in ns, packets in flight and what part of the window they are, whether ECN is off, and the numbers of marks, losses, retransmissions and timeouts.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn query_path(&self, conn: u32, path: u16) -> Result<PathStats, Error> {
        let stats = self.endpoint.path_stats(conn, path);
        stats.ok_or(missing("path", path.into()))
    }

    /// A plane: its addresses, whether it is up and has been proven, and the paths that go through it.
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn query_plane(&self, conn: u32, plane: u8) -> Result<PlaneStats, Error> {
        let stats = self.endpoint.plane_stats(conn, plane);
        stats.ok_or(missing("plane", plane.into()))
    }

    /// The stream of a queue pair: state, work that is not complete, receives that are not consumed, credit, packets in
    /// flight, and totals of messages and of payload bytes in both directions since it was opened.
    ///
    /// # Errors
    /// [`Error::NotFound`], also when the queue pair has no stream.
    pub fn query_stream(&self, qp: Qp) -> Result<StreamStats, Error> {
        let place = self.place(qp);
        let stats = place.and_then(|(conn, stream)| self.endpoint.stream_stats(conn, stream));
        stats.ok_or(missing("stream of queue pair", qp.0))
    }

    /// What the whole endpoint has counted, in packets: over all connections, and for packets of none. `conn` only has to be
    /// one that it knows; what belongs to one connection is told by [`Self::query_connection`] and [`Self::query_path`].
    ///
    /// # Errors
    /// [`Error::NotFound`].
    pub fn query_counters(&self, conn: u32) -> Result<Counters, Error> {
        let counters = self.endpoint.counters(conn);
        counters.ok_or(missing("connection", conn))
    }

    // ---- what can be asked for ----------------------------------------------------------------------------------

    /// Sends a path from another source port, or through another plane.
    ///
    /// # Errors
    /// [`Error::Core`]: no such connection, path or plane; a port of another path or outside the range; a path that carries
    /// no data.
    pub fn move_path(
        &mut self,
        now: u64,
        conn: u32,
        path: u16,
        port: Option<u16>,
        plane: Option<u8>,
    ) -> Result<(), Error> {
        self.endpoint.move_path(now, conn, path, port, plane)?;
        self.drive(now);
        Ok(())
    }

    /// Gives up a path. What the peer has not got of it goes elsewhere, and it is opened again by itself when a probe is
    /// answered: [`AsyncEvent::PathAlive`](super::AsyncEvent::PathAlive) tells of that.
    ///
    /// # Errors
    /// [`Error::Core`]: no such connection or path; no other path is alive; retirement was not agreed.
    pub fn retire_path(&mut self, now: u64, conn: u32, path: u16) -> Result<(), Error> {
        self.endpoint.retire_path(now, conn, path)?;
        self.drive(now);
        Ok(())
    }

    /// Asks a retired path whether it works again as soon as the first pause since its retirement, 1 s, allows (PATH-038),
    /// however long the present pause has become by questions without an answer.
    ///
    /// # Errors
    /// [`Error::Core`]: no such connection or path; the path is not retired.
    pub fn reopen_path(&mut self, now: u64, conn: u32, path: u16) -> Result<(), Error> {
        self.endpoint.reopen_path(conn, path)?;
        self.drive(now);
        Ok(())
    }

    /// Says that a plane of a connection works, or that it does not: its paths leave it at once, or come back.
    ///
    /// # Errors
    /// [`Error::Core`].
    pub fn set_plane(&mut self, now: u64, conn: u32, plane: u8, up: bool) -> Result<(), Error> {
        self.endpoint.set_plane(now, conn, plane, up)?;
        self.drive(now);
        Ok(())
    }

    /// Sets the inbound capacity, Mb/s, of which the senders are told their shares.
    ///
    /// # Errors
    /// [`Error::Core`] when the device was made without a capacity.
    pub fn set_capacity(&mut self, mbps: u32) -> Result<(), Error> {
        Ok(self.endpoint.set_capacity(mbps)?)
    }

    /// Closes a connection once the work of all its queue pairs is complete; they go to ERR then. Until that it takes
    /// receives but no work.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Core`].
    pub fn close_connection(&mut self, now: u64, conn: u32) -> Result<(), Error> {
        if !self.connections.is_known(conn) {
            return Err(missing("connection", conn));
        }
        self.endpoint.close(now, conn)?;
        self.connections.closes(conn);
        self.drive(now);
        Ok(())
    }

    /// Closes every connection that is up, whoever has opened it, as [`Self::close_connection`] does.
    pub fn close_all_connections(&mut self, now: u64) {
        for conn in self.connections.to_close() {
            // What cannot be closed has failed, which shows by its end.
            let _failed = self.close_connection(now, conn);
        }
    }

    /// Connections that are up and not over, those that are being closed among them.
    pub fn connections_up(&self) -> usize {
        self.connections.up()
    }

    /// Ends a connection at once: all of its work is flushed, its queue pairs go to ERR.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Core`].
    pub fn abort_connection(&mut self, now: u64, conn: u32) -> Result<(), Error> {
        if !self.connections.is_known(conn) {
            return Err(missing("connection", conn));
        }
        self.endpoint.abort(now, conn)?;
        self.drive(now);
        Ok(())
    }
}

fn missing(what: &'static str, id: u32) -> Error {
    Error::NotFound { what, id }
}
