//! What a clause is made of.

use std::fmt;

use serde::{Serialize, Serializer};

/// One testable statement of the specification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Clause {
    /// Name that never changes, such as `REL-007`.
    pub id: String,
    /// How binding the statement is.
    pub level: Level,
    /// Whom it binds.
    pub role: Role,
    /// What it rests on.
    pub source: Source,
    /// Where it shows whether the statement is kept.
    pub observability: Observability,
    /// The statement, with single spaces between words.
    pub text: String,
    /// How often the statement has been amended, and once more: 1 for the first wording.
    pub revision: u32,
    /// Ids of the features that have to be claimed and agreed for the clause to bind, as written; none: it always binds.
    pub requires: Vec<String>,
    /// Why no test covers the clause, where that is so on purpose.
    pub exception: Option<String>,
    /// File name of the chapter.
    pub chapter: String,
    /// Line of the clause's heading in that file, from 1.
    pub line: usize,
}

/// Makes an enum of names that stand in the chapters: parsing, printing and serialising use the same list.
macro_rules! names {
    ( $(#[$doc:meta])* $name:ident { $( $(#[$vdoc:meta])* $variant:ident = $text:literal ),+ $(,)? } ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $( $(#[$vdoc])* $variant ),+ }

        impl $name {
            /// Every value, in the order of declaration.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),+ ];

            /// The name as it is written in chapters and results.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $text ),+ }
            }

            /// The value of that name.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }
    };
}

names! {
    /// How binding a statement is, by the key words of BCP 14. Synonyms fall together: SHALL and REQUIRED are MUST,
    /// RECOMMENDED is SHOULD, OPTIONAL is MAY.
    Level {
        /// An absolute requirement.
        Must = "MUST",
        /// An absolute prohibition.
        MustNot = "MUST NOT",
        /// To be done unless there are good reasons against it.
        Should = "SHOULD",
        /// To be left undone unless there are good reasons for it.
        ShouldNot = "SHOULD NOT",
        /// A permission.
        May = "MAY",
    }
}

names! {
    /// Whom a clause binds.
    Role {
        /// The side that sends data packets, for one direction.
        Sender = "sender",
        /// The side that receives data packets, for one direction.
        Receiver = "receiver",
        /// The side that sends OPEN.
        Initiator = "initiator",
        /// The side that answers OPEN.
        Acceptor = "acceptor",
        /// Either side.
        Endpoint = "endpoint",
    }
}

names! {
    /// Where an observer can see whether a clause is kept.
    Observability {
        /// In the packets, seen from both ends of the link.
        Wire = "wire",
        /// In the memory that the implementation has registered.
        Memory = "memory",
        /// In the completions that the implementation reports.
        Completion = "completion",
        /// In the counters that the implementation reports.
        Counter = "counter",
        /// Nowhere outside the implementation; such a clause states the exception.
        None = "none",
    }
}

/// What a clause rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Source {
    /// A published statement, paraphrased.
    Public {
        /// Its number, from 1 to [`STATEMENTS`](crate::STATEMENTS).
        statement: u8,
        /// What it says, in this project's words.
        paraphrase: String,
    },
    /// A choice of this project.
    Project {
        /// Why it was made.
        reason: String,
    },
}

impl Source {
    /// Reads `public Pn, paraphrase` or `project, reason`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (origin, words) = text.split_once(',')?;
        let words = words.trim();
        if words.is_empty() {
            return None;
        }
        if origin == "project" {
            return Some(Self::Project {
                reason: words.to_owned(),
            });
        }
        let number = origin.strip_prefix("public P")?;
        // A number is written in one way only: no sign, no leading zero.
        let statement: u8 = number.parse().ok()?;
        let known = (1..=crate::STATEMENTS).contains(&statement) && number == statement.to_string();
        known.then(|| Self::Public {
            statement,
            paraphrase: words.to_owned(),
        })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Public {
                statement,
                paraphrase,
            } => write!(f, "public P{statement}, {paraphrase}"),
            Self::Project { reason } => write!(f, "project, {reason}"),
        }
    }
}
