//! Objects are what they say, once.

use std::collections::BTreeMap;

use super::{Context, Target, at};
use crate::diagnostic::Code;
use crate::model::kind::{Kind, ObjectRef};

/// Kind, workspace and name occur once.
pub(super) fn objects_are_unique(context: &mut Context<'_>) {
    let declared = context.declared;
    for (object, places) in declared {
        let first = context.target(object, at!["metadata", "name"]);
        for place in &places[1..] {
            let target = Target {
                place: *place,
                ..first.clone()
            };
            let message = format!("{object} is declared twice");
            context
                .report_at(Code::DuplicateObject, target, message)
                .label(first.clone(), "first here");
        }
    }
}

/// There is at most one Fleet.
pub(super) fn fleet_is_one(context: &mut Context<'_>) {
    let declared = context.declared;
    let is_fleet = |(object, _): &(&ObjectRef, _)| object.kind == Kind::Fleet;
    let mut fleets: Vec<_> = declared.iter().filter(is_fleet).collect();
    fleets.sort_by_key(|(_, places)| places[0]);
    let Some(((first, _), others)) = fleets.split_first() else {
        return;
    };
    let first = context.target(first, at!["metadata", "name"]);
    for (object, _) in others {
        let message = "there is a Fleet already".to_owned();
        let path = at!["metadata", "name"];
        context
            .report(Code::SecondFleet, object, path, message)
            .label(first.clone(), "this one")
            .help("put all settings into one Fleet");
    }
}

/// No two objects have one `metadata.uid`.
pub(super) fn uids_are_unique(context: &mut Context<'_>) {
    let mut owners = BTreeMap::new();
    for (object, index) in context.catalog.index() {
        let Some(uid) = index.metadata.uid else {
            continue;
        };
        let path = at!["metadata", "uid"];
        match owners.get(&uid) {
            None => {
                owners.insert(uid, context.target(&object, path));
            }
            Some(owner) => {
                let message = format!("the uid {uid} is another object's");
                context
                    .report(Code::DuplicateUid, &object, path, message)
                    .label(owner.clone(), "that one's");
            }
        }
    }
}
