//! Packets that belong to no connection yet: OPEN and CONFIRM at the acceptor.

use std::net::SocketAddr;

use metaroce_wire::metaroce::{
    Accept, Body, Cbh, Confirm, ConfirmAck, Opcode, Open, Params, Planes, Reject, RejectReason,
    VERSION,
};

use super::connection::{Connection, MOST_WAITING, Settings};
use super::emit::emit;
use super::endpoint::Endpoint;
use super::handshake::{Secret, bytes_of, is_acceptable};
use super::plane::{are_named, joinable};
use super::transitions::Event as Change;
use rand_core::Rng;

impl Endpoint {
    /// Where answers go: the port that both sides are configured with, never the source port (CONV-003).
    fn service_of(&self, from: SocketAddr) -> SocketAddr {
        SocketAddr::new(from.ip(), self.config.local.port())
    }

    fn answer(&mut self, from: SocketAddr, cbh: Cbh, body: Body<'_>) {
        // Whoever asks faster than answers leave asks again (ch. 15: an acceptor keeps nothing).
        if self.stateless.len() >= MOST_WAITING {
            self.counters.unanswered += 1;
            return;
        }
        let to = self.service_of(from);
        let bytes = emit(cbh, body, self.config.local.ip(), to);
        // A repetition comes from another port, and its answer leaves from another one.
        let ports = &self.config.source_ports;
        let port = ports.start + from.port() % (ports.len() as u16).max(1);
        self.stateless.push_back((port, to, bytes));
    }

    fn reject(
        &mut self,
        now: u64,
        from: SocketAddr,
        cbh: &Cbh,
        params: &Params,
        reason: RejectReason,
    ) {
        let body = Reject {
            reason: reason.0,
            ver_min: VERSION,
            ver_max: VERSION,
            rsvd: 0,
            nonce: params.nonce,
            detail: 0,
        };
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::REJECT, params.scid)
        };
        self.answer(from, header, Body::Reject(body));
    }

    /// Whether the id that an initiator has chosen is in use at its address by another connection than the one that would
    /// be set up, or rests (CONN-048).
    fn is_named_by_another(&self, from: SocketAddr, offered: &Params, accepted: &Params) -> bool {
        let known = self.by_peer(from.ip(), offered.scid.value());
        known.is_some_and(|connection| {
            connection.mine.scid != accepted.scid || connection.theirs.nonce != offered.nonce
        })
    }

    pub(super) fn on_open(&mut self, now: u64, from: SocketAddr, cbh: &Cbh, open: &Open<'_>) {
        let params = &open.params;
        // An endpoint that offers nothing is no acceptor, and says nothing.
        let Some(service) = self.service else {
            self.counters.stray += 1;
            return;
        };
        if !(params.ver_min..=params.ver_max).contains(&VERSION) {
            return self.reject(now, from, cbh, params, RejectReason::VERSION);
        }
        if params.service_id != service.service_id {
            return self.reject(now, from, cbh, params, RejectReason::NO_SERVICE);
        }
        if !is_acceptable(params) || !are_named(&open.planes, params.extra_planes) {
            return self.reject(now, from, cbh, params, RejectReason::BAD_PARAMETERS);
        }
        let mut accepted = self
            .secret
            .accept(from.ip(), params, &service, &self.config);
        let planes = joinable(&open.planes, &self.config.planes);
        accepted.extra_planes = accepted.extra_planes.min(planes);
        let taken = self.by_cid(accepted.scid.value());
        let other = taken.is_some_and(|connection| connection.theirs.nonce != params.nonce);
        let named = self.is_named_by_another(from, params, &accepted);
        if other || named || (taken.is_none() && self.is_full()) {
            return self.reject(now, from, cbh, params, RejectReason::NO_RESOURCE);
        }
        let own = Planes::bytes_of(&self.config.planes[..usize::from(accepted.extra_planes)]);
        let cookie = self.secret.cookie(
            now,
            from.ip(),
            &bytes_of(params, &open.planes),
            &bytes_of(&accepted, &Planes(&own)),
        );
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::ACCEPT, params.scid)
        };
        let accept = Accept {
            params: accepted,
            planes: Planes(&own),
            cookie,
        };
        self.answer(from, header, Body::Accept(accept));
    }

    pub(super) fn on_confirm(
        &mut self,
        now: u64,
        from: SocketAddr,
        cbh: &Cbh,
        confirm: &Confirm<'_>,
    ) {
        let (offered, accepted) = (&confirm.params, &confirm.accepted);
        let known = self.by_cid(accepted.scid.value());
        let repeated = known.is_some_and(|c| {
            c.theirs == *offered && c.mine == *accepted && c.peer.ip() == from.ip()
        });
        // An endpoint that offers nothing is no acceptor, but for those that it has connected before.
        if self.service.is_none() && !repeated {
            self.counters.stray += 1;
            return;
        }
        let cookie = &confirm.cookie;
        let vouched = (
            bytes_of(offered, &confirm.planes),
            bytes_of(accepted, &confirm.accepted_planes),
        );
        let mut good = cbh.dcid == accepted.scid
            && self
                .secret
                .is_mine(from.ip(), &vouched.0, &vouched.1, cookie);
        // Repetitions are answered for as long as the connection is known.
        good &= repeated || Secret::is_fresh(now, cookie) && !self.spent.has(now, cookie);
        if !good {
            return self.reject(now, from, cbh, offered, RejectReason::BAD_COOKIE);
        }
        if let Some(service) = self.service.filter(|_| !repeated) {
            let taken = self.by_cid(accepted.scid.value()).is_some();
            if taken || self.is_named_by_another(from, offered, accepted) || self.is_full() {
                return self.reject(now, from, cbh, offered, RejectReason::NO_RESOURCE);
            }
            self.spent.add(*cookie);
            let handle = self.take_handle(accepted.scid.value());
            let offset = (handle as u16).wrapping_mul(accepted.paths);
            let settings = Settings::new(&self.config, offset);
            let mut connection = Connection::blank(
                now,
                handle,
                (settings, self.service_of(from)),
                &service,
                (*accepted, *offered),
                self.random.next_u32(),
            );
            let extra = accepted.extra_planes;
            connection.join_planes(&self.config.planes, &confirm.planes, extra);
            connection.connect(now, Change::ValidConfirm);
            self.add(connection);
            self.with(handle, |connection, shared, _| connection.establish(shared));
        }
        let header = Cbh {
            psn: cbh.psn,
            timestamp: now as u32,
            ..Cbh::new(Opcode::CONFIRM_ACK, offered.scid)
        };
        let nonce = offered.nonce;
        self.answer(from, header, Body::ConfirmAck(ConfirmAck { nonce }));
    }
}
