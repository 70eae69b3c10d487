//! Tickets: the status graph.

use serde::{Deserialize, Serialize};
use strum::{Display, EnumIter, EnumString};

/// Where a ticket is.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    Display,
    EnumString,
    EnumIter,
)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum TicketStatus {
    /// Not yet wanted.
    Backlog,
    /// Wanted.
    Open,
    /// Its agent works.
    InProgress,
    /// It waits for something.
    Blocked,
    /// It waits for a look.
    InReview,
    /// It is finished.
    Done,
    /// It failed.
    Failed,
    /// It is no longer wanted.
    Cancelled,
}

impl TicketStatus {
    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Failed | Self::Cancelled)
    }

    /// Whether `self → to` is a legal transition.
    pub const fn may_become(self, to: Self) -> bool {
        match self {
            Self::Backlog => matches!(to, Self::Open | Self::Cancelled),
            Self::Open => matches!(to, Self::InProgress | Self::Blocked | Self::Cancelled),
            Self::InProgress => matches!(
                to,
                Self::Blocked | Self::InReview | Self::Done | Self::Failed | Self::Cancelled
            ),
            Self::Blocked => matches!(to, Self::InProgress | Self::Cancelled),
            Self::InReview => {
                matches!(
                    to,
                    Self::InProgress | Self::Done | Self::Failed | Self::Cancelled
                )
            }
            Self::Done | Self::Failed | Self::Cancelled => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TicketStatus;
    use strum::IntoEnumIterator;

    #[test]
    fn the_status_graph_is_as_documented() {
        let mut edges = Vec::new();
        for from in TicketStatus::iter() {
            for to in TicketStatus::iter().filter(|to| from.may_become(*to)) {
                edges.push(format!("{from}>{to}"));
            }
        }
        assert_eq!(
            edges.join(" "),
            "backlog>open backlog>cancelled open>inProgress open>blocked open>cancelled \
             inProgress>blocked inProgress>inReview inProgress>done inProgress>failed \
             inProgress>cancelled blocked>inProgress blocked>cancelled inReview>inProgress \
             inReview>done inReview>failed inReview>cancelled"
        );
    }

    #[test]
    fn nothing_leaves_a_terminal_status() {
        for from in TicketStatus::iter().filter(|status| status.is_terminal()) {
            assert!(
                TicketStatus::iter().all(|to| !from.may_become(to)),
                "{from}"
            );
        }
    }
}
