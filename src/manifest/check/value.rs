//! Values that a schema cannot judge: sets, time zones, cron expressions, names of variables.

use std::collections::BTreeMap;

use super::{Context, at};
use crate::diagnostic::{Code, did_you_mean, quote};
use crate::manifest::walk::Step;
use crate::model::cron::CronSchedule;
use crate::model::kind::{Kind, ObjectRef};
use crate::model::spec::AdapterType;
use crate::model::units::{OWN_VARIABLES, is_variable_name};
use crate::model::zone::{self, time_zone};

/// Lists of names hold each name once.
pub(super) fn lists_are_sets(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, workspace) in &catalog.workspaces {
        is_set(context, object, "repos", &workspace.spec.repos);
    }
    for (object, agent) in &catalog.agents {
        is_set(context, object, "skills", &agent.spec.skills);
    }
    for (object, space) in &catalog.spaces {
        is_set(context, object, "agents", &space.spec.agents);
        is_set(
            context,
            object,
            "repos",
            space.spec.repos.as_deref().unwrap_or_default(),
        );
    }
    for (object, ticket) in &catalog.tickets {
        is_set(context, object, "labels", &ticket.spec.labels);
    }
}

fn is_set<T: Ord + ToString>(
    context: &mut Context<'_>,
    object: &ObjectRef,
    field: &str,
    entries: &[T],
) {
    let mut first = BTreeMap::new();
    for (index, entry) in entries.iter().enumerate() {
        match first.get(entry) {
            None => {
                first.insert(entry, index);
            }
            Some(first) => {
                let label = context.target(object, at!["spec", field, *first]);
                let message = format!("{} has {} twice", quote(field), quote(&entry.to_string()));
                let path = at!["spec", field, index];
                context
                    .report(Code::DuplicateEntry, object, path, message)
                    .label(label, "first here");
            }
        }
    }
}

/// Time zones exist and cron expressions come due.
pub(super) fn times_exist(context: &mut Context<'_>) {
    let catalog = context.catalog;
    if let Some(fleet) = &catalog.fleet {
        let object = crate::model::desired::reference_of(Kind::Fleet, &fleet.metadata);
        is_zone(context, &object, &fleet.spec.zone);
    }
    for (object, policy) in &catalog.budget_policies {
        if let Some(zone) = &policy.spec.zone {
            is_zone(context, object, zone);
        }
    }
    for (object, schedule) in &catalog.schedules {
        if let Some(zone) = &schedule.spec.zone {
            is_zone(context, object, zone);
        }
        // The zone is judged above, and no expression depends on it.
        if let Err(error) = CronSchedule::parse(&schedule.spec.cron, "UTC") {
            let path = at!["spec", "cron"];
            context
                .report(Code::BadCron, object, path, error.to_string())
                .help("for example `0 9 * * 1-5`: at nine on working days");
        }
    }
}

fn is_zone(context: &mut Context<'_>, object: &ObjectRef, name: &str) {
    if time_zone(name).is_some() {
        return;
    }
    let names = zone::names();
    let near = did_you_mean(name, names.iter().map(String::as_str));
    let help = match near {
        Some(near) => format!("did you mean {}?", quote(near)),
        None => "for example `UTC` or `Europe/Berlin`".to_owned(),
    };
    let message = format!("there is no time zone {}", quote(name));
    context
        .report(Code::UnknownZone, object, at!["spec", "zone"], message)
        .help(help);
}

/// Names of variables can be set, and are not homeostat's own.
pub(super) fn variables_are_settable(context: &mut Context<'_>) {
    let catalog = context.catalog;
    let adapters = catalog.adapters.iter().map(|(it, of)| (it, &of.spec.env));
    let dispatches = catalog.dispatches.iter().map(|(it, of)| (it, &of.spec.env));
    for (object, variables) in adapters.chain(dispatches) {
        for name in variables.keys() {
            let problem = if name.starts_with(OWN_VARIABLES) {
                "is set by homeostat"
            } else if !is_variable_name(name) {
                "is not the name of a variable"
            } else {
                continue;
            };
            let path: Vec<Step> = at!["spec", "env", name.as_str()];
            let message = format!("{} {problem}", quote(name));
            context
                .report(Code::BadVariable, object, path, message)
                .at_key()
                .help("letters, digits and `_`, not beginning with a digit or `HOMEOSTAT_`");
        }
    }
}

/// An adapter that runs any program says which.
pub(super) fn commands_have_a_program(context: &mut Context<'_>) {
    let catalog = context.catalog;
    for (object, adapter) in &catalog.adapters {
        match adapter.spec.r#type {
            AdapterType::Command if adapter.spec.command.is_none() => {
                let message = "the field `command` in `spec` is missing".to_owned();
                context
                    .report(Code::MissingField, object, at!["spec", "command"], message)
                    .help("an Adapter of type `command` runs any program, and has to name it");
            }
            AdapterType::Command | AdapterType::ClaudeCode => {}
        }
    }
}
