//! What an implementation claims (PICS), and whether its adapter says the same.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::iut::Capabilities;
use crate::scenario::{Scenario, Work};
use crate::trace::Side;

/// Version of the form of a PICS file.
pub const SCHEMA: &str = "metaroce-pics/1";
/// The claims of the reference endpoint.
pub const REFERENCE: &str = include_str!("../pics/reference.yaml");

/// The claims of an implementation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pics {
    /// [`SCHEMA`].
    pub schema: String,
    /// Name of the implementation.
    pub name: String,
    /// Roles it can take.
    pub roles: Vec<Role>,
    /// Operations it offers.
    pub operations: Vec<Operation>,
    /// Paths in each direction, at most.
    pub max_paths: u16,
    /// Streams, at most.
    pub max_streams: u16,
    /// Payload sizes it can agree to, bytes.
    pub payload_sizes: Vec<u16>,
    /// Whether its first PSN can be chosen.
    pub initial_psn: bool,
    /// Features of the specification that it offers.
    #[serde(default)]
    pub features: Vec<String>,
}

/// A role in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Opens it.
    Initiator,
    /// Accepts it.
    Acceptor,
}

impl Role {
    /// The role of the party on `side`.
    pub fn of(side: Side) -> Self {
        match side {
            Side::A => Self::Initiator,
            Side::B => Self::Acceptor,
        }
    }

    /// The name, as adapters write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Initiator => "initiator",
            Self::Acceptor => "acceptor",
        }
    }
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Operation {
    /// Send.
    Send,
    /// Write.
    Write,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "write",
        }
    }
}

impl Pics {
    /// Reads claims.
    ///
    /// # Errors
    /// A message with file, and line and column where the text is to blame. Claims of nothing are an error.
    pub fn parse(file: &str, text: &str) -> Result<Self, String> {
        let pics: Self = crate::yaml::read(file, text)?;
        let fail = |what: &str| Err(format!("{file}: {what}"));
        if pics.schema != SCHEMA {
            return fail(&format!("schema {:?} instead of {SCHEMA:?}", pics.schema));
        }
        if pics.roles.is_empty() || pics.operations.is_empty() || pics.payload_sizes.is_empty() {
            return fail(
                "claims no role, no operation or no payload size: nothing could be tested",
            );
        }
        if pics.max_paths == 0 || pics.max_streams == 0 {
            return fail("claims no path or no stream: nothing could be tested");
        }
        let known = metaroce_spec::features().map_err(|e| e.to_string())?;
        for (i, feature) in pics.features.iter().enumerate() {
            if known.iter().all(|known| known.id != *feature) {
                let ids: Vec<&str> = known.iter().map(|known| known.id.as_str()).collect();
                return fail(&format!(
                    "features: there is no feature {feature:?}; there are {}",
                    ids.join(", ")
                ));
            }
            if pics.features[..i].contains(feature) {
                return fail(&format!("features: {feature:?} a second time"));
            }
        }
        Ok(pics)
    }

    /// Reads a file of claims.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn load(path: &Path) -> Result<Self, String> {
        let file = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|e| format!("{file}: {e}"))?;
        Self::parse(&file, &text)
    }

    /// Where the adapter says otherwise than the claims, in either direction.
    pub fn contradictions(&self, said: &Capabilities) -> Vec<String> {
        let mut all = Vec::new();
        let mut compare = |what: &str, mut claimed: Vec<String>, mut said: Vec<String>| {
            claimed.sort();
            said.sort();
            if claimed != said {
                all.push(format!(
                    "{what}: the PICS claims {}, the adapter says {}",
                    claimed.join(" "),
                    said.join(" ")
                ));
            }
        };
        compare(
            "roles",
            self.roles.iter().map(|r| r.name().into()).collect(),
            said.roles.clone(),
        );
        compare(
            "operations",
            self.operations.iter().map(|o| o.name().into()).collect(),
            said.operations.clone(),
        );
        let numbers = |all: &[u16]| all.iter().map(u16::to_string).collect();
        compare(
            "payload_sizes",
            numbers(&self.payload_sizes),
            numbers(&said.payload_sizes),
        );
        compare(
            "max_paths",
            vec![self.max_paths.to_string()],
            vec![said.max_paths.to_string()],
        );
        compare(
            "max_streams",
            vec![self.max_streams.to_string()],
            vec![said.max_streams.to_string()],
        );
        compare(
            "initial_psn",
            vec![self.initial_psn.to_string()],
            vec![said.initial_psn.to_string()],
        );
        all
    }

    /// Why a scenario is not for this implementation on `side`, if so.
    pub fn excludes(&self, scenario: &Scenario, side: Side) -> Option<String> {
        let role = Role::of(side);
        if !self.roles.contains(&role) {
            return Some(format!("the PICS claims no role {}", role.name()));
        }
        if scenario.paths > self.max_paths {
            return Some(format!(
                "the PICS claims {} paths, {} are needed",
                self.max_paths, scenario.paths
            ));
        }
        if scenario.streams > self.max_streams {
            return Some(format!(
                "the PICS claims {} streams, {} are needed",
                self.max_streams, scenario.streams
            ));
        }
        let payload = scenario.payload.bytes();
        if !self
            .payload_sizes
            .iter()
            .any(|size| u64::from(*size) == payload)
        {
            return Some(format!("the PICS claims no payload of {payload} bytes"));
        }
        let needs = |operation| {
            scenario.work.iter().any(|work| {
                matches!(
                    (work, operation),
                    (Work::Send(_) | Work::Recv(_), Operation::Send)
                        | (Work::Write(_), Operation::Write)
                )
            })
        };
        let missing = [Operation::Send, Operation::Write]
            .into_iter()
            .find(|o| needs(*o) && !self.operations.contains(o));
        missing.map(|operation| format!("the PICS claims no operation {}", operation.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_nothing_are_refused() {
        let sound = Pics::parse("f", REFERENCE).unwrap();
        assert_eq!(sound.name, "reference endpoint");
        for (from, to) in [
            ("roles: [initiator, acceptor]", "roles: []"),
            ("max_paths: 256", "max_paths: 0"),
            ("schema: metaroce-pics/1", "schema: x"),
            ("operations: [send, write]", "operations: [fly]"),
            ("initial_psn: true", "initial_psn: yes"),
            ("features: []", "features: [flying]"),
            ("features: []", "features: [read, read]"),
        ] {
            assert!(
                Pics::parse("f", &REFERENCE.replace(from, to)).is_err(),
                "{to}"
            );
        }
        assert!(Pics::parse("f", "").is_err());
        let with = Pics::parse("f", &REFERENCE.replace("features: []", "features: [read]"));
        assert_eq!(with.unwrap().features, ["read"]);
        let without = Pics::parse("f", &REFERENCE.replace("features: []", ""));
        assert_eq!(without.unwrap().features, [""; 0]);
    }
}
