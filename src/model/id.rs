//! Typed ids: one newtype a noun. An id is either *minted* (random, by an
//! [`IdSource`](crate::clock::IdSource)) or *derived* from its cause. What the planner creates is
//! always derived, so that planning the same thing twice names the same row and the database's
//! primary key makes every such creation idempotent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The name space of every derived id (version 5, RFC 9562 §5.5). Arbitrary, and fixed for ever.
const DERIVED: Uuid = Uuid::from_u128(0x6f6d_656f_7374_6174_8000_0000_0000_0001);

/// Derives an id from what it stands for. `parts` are joined by a byte that no part may contain.
fn derive(noun: &str, parts: &[&str]) -> Uuid {
    let mut name = noun.to_owned();
    for part in parts {
        name.push('\0');
        name.push_str(part);
    }
    Uuid::new_v5(&DERIVED, name.as_bytes())
}

macro_rules! typed_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// Wraps an id that was minted or read back.
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// The id that stands for this cause, the same on every call.
            pub fn derived(parts: &[&str]) -> Self {
                Self(derive(stringify!($name), parts))
            }

            /// The plain UUID, for the boundary.
            pub const fn uuid(self) -> Uuid {
                self.0
            }

            /// The first eight digits, for names that people read.
            pub fn short(self) -> String {
                self.0.simple().to_string()[..8].to_owned()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.hyphenated().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

typed_id!(
    /// An object's identity: minted at first sight, kept over edits, new after delete and create.
    Uid
);
typed_id!(
    /// One reason to wake an agent, durable before it is acknowledged.
    WakeId
);
typed_id!(
    /// One dispatch of one agent (one AgentRunLog row); also the id of its reply message.
    RunId
);
typed_id!(
    /// A thread in a space. The main conversation has the space's uid.
    ConversationId
);
typed_id!(
    /// One message of a conversation.
    MessageId
);
typed_id!(
    /// What an agent's program calls its own memory of a conversation.
    SessionId
);
typed_id!(
    /// One repo's checkout under one space.
    WorktreeId
);
typed_id!(
    /// An operator's imperative, stricter-than-git instruction.
    OverrideId
);

impl ConversationId {
    /// The main conversation of a space.
    pub const fn main_of(space: Uid) -> Self {
        Self(space.0)
    }
}

impl MessageId {
    /// The reply of a run shares the run's id.
    pub const fn reply_of(run: RunId) -> Self {
        Self(run.0)
    }
}

impl WorktreeId {
    /// The worktree of `repo` in `space`.
    pub fn of(space: Uid, repo: Uid) -> Self {
        Self::derived(&[&space.to_string(), &repo.to_string()])
    }
}

impl RunId {
    /// The run that serves `wake`: claiming one wake twice is one row.
    pub fn of(wake: WakeId) -> Self {
        Self::derived(&[&wake.to_string()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_id_depends_on_noun_and_parts_only() {
        assert_eq!(WakeId::derived(&["a", "b"]), WakeId::derived(&["a", "b"]));
        assert_ne!(WakeId::derived(&["a", "b"]), WakeId::derived(&["ab"]));
        assert_ne!(
            WakeId::derived(&["a"]).uuid(),
            RunId::derived(&["a"]).uuid()
        );
    }

    #[test]
    fn ids_round_trip_as_text() {
        let id = RunId::derived(&["x"]);
        assert_eq!(id.to_string().parse::<RunId>(), Ok(id));
        assert_eq!(id.short().len(), 8);
    }
}
