//! Planes: pairs of addresses that belong together, which of them work, and which path goes through which.

use std::net::IpAddr;

use metaroce_wire::metaroce::{Body, Cbh, Features, Opcode, PathChange, Planes};

use super::config::Misuse;
use super::connection::{Connection, NEVER, Shared};
use super::control::Control;
use super::emit::emit;
use super::probe::{FIRST_PAUSE, MOST_PAUSE};

/// A pair of addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plane {
    pub local: IpAddr,
    pub peer: IpAddr,
    /// The application says that it works.
    pub up: bool,
    /// A probe in it has been answered; plane 0 is that of the handshake (PLN-012).
    pub proven: bool,
    /// When it is probed next, and the pause after that.
    due: u64,
    pause: u64,
}

impl Plane {
    /// The plane of the handshake.
    pub(super) fn handshake(local: IpAddr, peer: IpAddr) -> Self {
        Self {
            local,
            peer,
            up: true,
            proven: true,
            due: NEVER,
            pause: FIRST_PAUSE,
        }
    }

    /// Whether data may be sent in it.
    pub(super) fn is_usable(&self) -> bool {
        self.up && self.proven
    }
}

/// Whether PLANES names an address for each of the `extra` planes and none beyond (CONN-037).
pub(super) fn are_named(planes: &Planes<'_>, extra: u8) -> bool {
    (1..=7u8).all(|number| planes.plane(number).is_some() == (number <= extra))
}

/// How many of the planes that a peer names can be joined to `own`: addresses of two families never are (PLN-010).
pub(super) fn joinable(planes: &Planes<'_>, own: &[IpAddr]) -> u8 {
    let pairs = (1..=7u8).zip(own);
    let joins = pairs.take_while(|(number, own)| {
        let theirs = planes.plane(*number);
        theirs.is_some_and(|theirs| theirs.is_ipv4() == own.is_ipv4())
    });
    joins.count() as u8
}

impl Connection {
    /// Joins the own planes to those of the peer, as many as are agreed.
    pub(super) fn join_planes(&mut self, own: &[IpAddr], theirs: &Planes<'_>, extra: u8) {
        for (number, local) in (1..=extra).zip(own) {
            let Some(peer) = theirs.plane(number) else {
                break;
            };
            self.planes.push(Plane {
                proven: false,
                ..Plane::handshake(*local, peer)
            });
        }
    }

    /// Whether data may go out on a path in its plane.
    pub(super) fn is_open(&self, path: u16) -> bool {
        let plane = usize::from(self.tx[usize::from(path)].plane);
        self.planes.get(plane).is_some_and(Plane::is_usable)
    }

    /// Whether a probe in the plane of a path has been answered, without which no data goes there.
    pub(super) fn is_proven(&self, path: u16) -> bool {
        let plane = usize::from(self.tx[usize::from(path)].plane);
        self.planes.get(plane).is_some_and(|plane| plane.proven)
    }

    /// Begins to probe the planes that nothing is known of.
    pub(super) fn probe_planes(&mut self, now: u64) {
        for plane in &mut self.planes {
            if !plane.proven {
                plane.due = now;
            }
        }
        self.arm(self.plane_deadline());
    }

    /// Notes that a probe in a plane has been answered: what has waited for that goes.
    pub(super) fn prove(&mut self, plane: u8) {
        if let Some(plane) = self.planes.get_mut(usize::from(plane)) {
            plane.proven = true;
            plane.due = NEVER;
        }
        for path in 0..self.tx.len() as u16 {
            if self.tx[usize::from(path)].plane == plane {
                self.repair(path);
            }
        }
    }

    pub(super) fn plane_deadline(&self) -> u64 {
        if !self.is_up() || self.planes.len() < 2 {
            return NEVER;
        }
        let asks = |plane: &&Plane| !plane.proven && plane.up;
        let due = self.planes.iter().filter(asks).map(|plane| plane.due);
        due.min().unwrap_or(NEVER)
    }

    /// Probes the planes whose time has come, each on a path that goes through it.
    pub(super) fn on_plane_timer(&mut self, now: u64, shared: &mut Shared<'_>) {
        if now < self.plane_deadline() {
            return;
        }
        for number in 1..self.planes.len() {
            let plane = &mut self.planes[number];
            if plane.proven || !plane.up || now < plane.due {
                continue;
            }
            plane.due = now + plane.pause;
            plane.pause = (2 * plane.pause).min(MOST_PAUSE);
            let in_it = |path: &super::tx_path::TxPath| {
                usize::from(path.plane) == number && path.state.is_alive()
            };
            if let Some(path) = self.tx.iter().position(in_it) {
                self.send_probe(now, path as u16, false, shared);
            }
        }
    }

    /// Sends a path by another port or through another plane, and tells of it where that is agreed (PATH-014).
    pub(super) fn change_route(&mut self, now: u64, path: u16, port: u16, plane: u8) {
        let tx = &mut self.tx[usize::from(path)];
        if (tx.port, tx.plane) == (port, plane) {
            return;
        }
        tx.change_route(now, port, plane);
        let (epoch, next_psn) = (tx.epoch, tx.next_psn());
        if let Some(plane) = self.planes.get_mut(usize::from(plane))
            && !plane.proven
        {
            plane.due = now;
            plane.pause = FIRST_PAUSE;
            self.arm(now);
        }
        if self.has(Features::CHANGE) {
            let id = self.next_transaction();
            let cbh = Cbh {
                path: path as u8,
                epoch,
                ..self.header(now, Opcode::PATH_CHANGE, id)
            };
            let body = Body::PathChange(PathChange {
                source_port: port,
                plane,
                rsvd: 0,
                next_psn,
            });
            let bytes = emit(cbh, body, self.settings.local.ip(), self.peer);
            self.control.push_back(Control {
                bytes,
                port,
                plane,
                request: None,
            });
        }
    }

    /// The next port that no path of the connection uses; the path's own when there is no other (PATH-002).
    pub(super) fn another_port(&self, path: u16) -> u16 {
        let own = self.tx[usize::from(path)].port;
        let settings = &self.settings;
        let place = own.wrapping_sub(settings.first_port);
        let all = (1..settings.ports).map(|i| {
            let place = (u32::from(place) + u32::from(i)) % u32::from(settings.ports);
            settings.first_port + place as u16
        });
        let is_free = |port: &u16| self.tx.iter().all(|tx| tx.port != *port);
        // A look at a few is enough: the others are as good.
        all.take(512).find(is_free).unwrap_or(own)
    }

    /// Another plane that works, for a path that is silent; its own when there is none.
    pub(super) fn another_plane(&self, path: u16) -> u8 {
        let own = self.tx[usize::from(path)].plane;
        let count = self.planes.len() as u8;
        let silent = |plane: u8| {
            let mut paths = self.tx.iter().filter(|tx| tx.plane == plane).peekable();
            paths.peek().is_some() && paths.all(|tx| tx.timeouts > 0 || !tx.state.is_alive())
        };
        let others = (1..count).map(|i| (own + i) % count);
        let usable = others.filter(|&plane| self.planes[usize::from(plane)].is_usable());
        let mut usable = usable.collect::<Vec<_>>();
        usable.sort_by_key(|&plane| silent(plane));
        usable.first().copied().unwrap_or(own)
    }

    /// Takes what the application says of a plane: paths leave one that is down at once, and come back when it is up.
    pub(super) fn set_plane(&mut self, now: u64, number: u8, up: bool) -> Result<(), Misuse> {
        let count = self.planes.len() as u16;
        let plane = self.planes.get_mut(usize::from(number));
        let plane = plane.ok_or(Misuse::NoPlane(number))?;
        plane.up = up;
        for path in 0..self.tx.len() as u16 {
            let tx = &self.tx[usize::from(path)];
            let port = tx.port;
            if !up && tx.plane == number {
                let to = self.another_plane(path);
                self.change_route(now, path, port, to);
            } else if up && path % count == u16::from(number) {
                self.change_route(now, path, port, number);
            }
            self.repair(path);
        }
        self.arm(self.plane_deadline());
        Ok(())
    }
}
