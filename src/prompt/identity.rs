//! Who a run is, to git and to itself.

use std::collections::BTreeMap;

use crate::model::run::RunOrder;
use crate::model::spec::GitIdentity;

use super::text::{flatten, one_line};

/// The longest name of a person that is passed on, in characters.
const PERSON_CHARS_MAX: usize = 320;

/// The variable that carries the co-author's line.
const COAUTHOR: &str = "HOMEOSTAT_GIT_COAUTHOR_TRAILER";

/// The trailer that credits the person who asked: `Co-Authored-By: Ada <ada@example.org>`.
/// An address alone is its own name; a name alone stays alone, for no address is made up.
/// None when nothing legible is left.
pub fn coauthor_trailer(requested_by: &str) -> Option<String> {
    let person: String = flatten(requested_by)
        .chars()
        .take(PERSON_CHARS_MAX)
        .collect();
    let person = person.trim();
    let is_address = person.contains('@') && !person.contains([' ', '<', '>']);
    match person {
        "" => None,
        address if is_address => Some(format!("Co-Authored-By: {address} <{address}>")),
        name => Some(format!("Co-Authored-By: {name}")),
    }
}

/// Git's view of a run: author and committer, and `HOMEOSTAT_GIT_COAUTHOR_TRAILER` when a person
/// asked.
pub fn git_environment(
    identity: &GitIdentity,
    requested_by: Option<&str>,
) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for role in ["AUTHOR", "COMMITTER"] {
        env.insert(format!("GIT_{role}_NAME"), flatten(&identity.name));
        env.insert(format!("GIT_{role}_EMAIL"), flatten(&identity.email));
    }
    if let Some(trailer) = requested_by.and_then(coauthor_trailer) {
        env.insert(COAUTHOR.to_owned(), trailer);
    }
    env
}

/// The layer that says who the agent is.
pub(super) fn layer(order: &RunOrder, requested_by: Option<&str>) -> String {
    let mut lines = vec![
        format!("You are {}.", one_line(&order.agent_title)),
        format!(
            "Agent: {} ({}).",
            one_line(order.agent_ref.name.as_str()),
            order.agent
        ),
        format!(
            "Workspace: {} ({}).",
            one_line(&order.workspace_name),
            order.workspace
        ),
        "Where an agent or a workspace is to be named by its id, give exactly these ids."
            .to_owned(),
        format!(
            "Your commits have {} <{}> as author and committer; git is set up for that, leave it so.",
            one_line(&order.identity.name),
            one_line(&order.identity.email)
        ),
    ];
    if let Some(trailer) = requested_by.and_then(coauthor_trailer) {
        lines.push(format!(
            "A person asked for this work. End the message of every commit with this line:\n{}",
            one_line(&trailer)
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailer_is_one_honest_line() {
        for (person, expected) in [
            (
                "Ada <ada@example.org>",
                Some("Co-Authored-By: Ada <ada@example.org>"),
            ),
            (
                "ada@example.org",
                Some("Co-Authored-By: ada@example.org <ada@example.org>"),
            ),
            ("Ada", Some("Co-Authored-By: Ada")),
            (
                "Ada\nSigned-Off-By: Eve <eve@example.org>",
                Some("Co-Authored-By: Ada Signed-Off-By: Eve <eve@example.org>"),
            ),
            (" \n\t", None),
            ("", None),
        ] {
            assert_eq!(coauthor_trailer(person).as_deref(), expected, "{person:?}");
        }
        let long = coauthor_trailer(&"é".repeat(1_000)).expect("a name");
        assert_eq!(long.chars().count(), "Co-Authored-By: ".len() + 320);
    }

    #[test]
    fn author_and_committer_are_the_agent() {
        let identity = GitIdentity {
            name: "Coder (agent)".to_owned(),
            email: "a@agents.homeostat.local".to_owned(),
        };
        let pairs = |env: BTreeMap<String, String>| {
            env.into_iter()
                .map(|(name, value)| format!("{name}={value}"))
                .collect::<Vec<_>>()
        };
        let own = [
            "GIT_AUTHOR_EMAIL=a@agents.homeostat.local",
            "GIT_AUTHOR_NAME=Coder (agent)",
            "GIT_COMMITTER_EMAIL=a@agents.homeostat.local",
            "GIT_COMMITTER_NAME=Coder (agent)",
        ];
        assert_eq!(pairs(git_environment(&identity, None)), own);
        assert_eq!(pairs(git_environment(&identity, Some(" "))), own);
        assert_eq!(
            pairs(git_environment(&identity, Some("Ada <ada@example.org>")))[4..],
            ["HOMEOSTAT_GIT_COAUTHOR_TRAILER=Co-Authored-By: Ada <ada@example.org>"]
        );
    }
}
