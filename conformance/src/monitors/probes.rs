//! Chapter 6, reliability: the questions and answers about a path.

use metaroce_wire::metaroce::Body;
use metaroce_wire::serial::Psn;

use super::check::{Found, equal, rules, sent};
use super::due::{Due, Dues};
use super::panel::{Make, Monitor, Tally};
use crate::model::{Model, Relation, Sighting};

rules! { "probes.rs":
    "REL-036" "a probe names the highest PSN sent" => Make::Rule(|s, model| sent(s, |cbh| match (s.body, model.connection(s)) {
        (Some(Body::PathProbe(probe)), Some(connection)) => match connection.out.get(&cbh.path) {
            Some(path) => equal("HighestPSN", path.psn_at(path.highest).value(), probe.highest_psn.value()),
            None => Found::Skip,
        },
        _ => Found::Skip,
    }));
    "REL-037" "a probe is answered at once with what it asked" => Make::Monitor(|| Box::<Answers>::default());
    "REL-038" "an answer reports nothing that has not arrived" => Make::Rule(|s, _| match &s.relation {
        Relation::AnswerSent(answer) => {
            // One that a refused packet explains is charged to the clause that refuses it.
            match answer.falsely.iter().find(|psn| s.answers.iter().all(|answer| answer.suspect.cbh.psn != **psn)) {
                None => Found::Held,
                Some(psn) => Found::Broken("what has arrived alone".into(), format!("PSN {psn} on path {}", answer.path)),
            }
        }
        _ => Found::Skip,
    });
    "REL-039" "an answer reports everything that had arrived" => Make::Rule(|s, _| match &s.relation {
        Relation::AnswerSent(answer) => match answer.omitted.first() {
            None => Found::Held,
            Some(psn) => Found::Broken(format!("PSN {psn}, which had arrived before the probe"), format!("a report on path {} without it", answer.path)),
        },
        _ => Found::Skip,
    });
}

/// Probes that wait for their answer: transaction, path, epoch, timestamp, HighestPSN.
#[derive(Default)]
struct Answers {
    dues: Dues<(Psn, u8, u8, u32, Psn)>,
}

impl Monitor for Answers {
    fn sighting(&mut self, s: &Sighting<'_>, model: &Model, tally: &mut Tally) {
        let alive = |model: &Model| {
            model
                .established()
                .is_some_and(|connection| !connection.closing.has_begun())
        };
        self.dues.expire(s.time, tally, |_| alive(model));
        let Some(cbh) = s.cbh else { return };
        match s.body {
            Some(Body::PathProbe(probe)) if !s.sent && s.is_sound() && alive(model) => {
                let exists = model.connection(s).is_some_and(|connection| {
                    connection.established.is_some()
                        && u16::from(cbh.path) < connection.agreed.paths
                        && cbh.epoch == 0
                });
                if exists {
                    self.dues.add(Due {
                        key: (
                            cbh.psn,
                            cbh.path,
                            cbh.epoch,
                            cbh.timestamp,
                            probe.highest_psn,
                        ),
                        since: s.time,
                        sure: s.time + model.slack_ns(),
                        deadline: s.time + model.context.allowance_ns,
                        frames: vec![s.frame],
                        expected: format!(
                            "PATH_PROBE_ACK with transaction {} on path {} at once",
                            cbh.psn, cbh.path
                        ),
                    });
                }
            }
            Some(Body::PathProbeAck(answer)) if s.sent => {
                let key = (
                    cbh.psn,
                    cbh.path,
                    cbh.epoch,
                    answer.timestamp_echo,
                    answer.highest_psn,
                );
                if self.dues.any(|waiting| *waiting == key) {
                    self.dues
                        .settle(s.time, s.frame, tally, |waiting| *waiting == key);
                    return;
                }
                // The right transaction with something else wrong.
                for due in self.dues.met(|waiting| waiting.0 == key.0) {
                    let frames = vec![due.frames.first().copied().unwrap_or(0), s.frame];
                    let words = |(transaction, path, epoch, stamp, highest): (
                        Psn,
                        u8,
                        u8,
                        u32,
                        Psn,
                    )| {
                        format!(
                            "transaction {transaction}, path {path}, epoch {epoch}, timestamp {stamp:08x}, HighestPSN {highest}"
                        )
                    };
                    tally.broken(frames, words(due.key), words(key));
                }
            }
            _ => {}
        }
    }

    fn finish(&mut self, model: &Model, tally: &mut Tally) {
        let ended = model.established().is_none_or(|c| c.closing.has_begun());
        self.dues.expire(model.now, tally, |_| !ended);
    }
}
