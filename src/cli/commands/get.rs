//! `get`: objects and their status, as a table.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::select;
use crate::api::dto::{Object, ObjectList};
use crate::cli::error::{CliError, CliResult, Exit, Kind, OrFail};
use crate::cli::form::ListForm;
use crate::cli::host::Host;
use crate::cli::reader::Reader;
use crate::cli::selector::Selector;
use crate::cli::show::{age, readiness};
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::model::condition::{ConditionStatus, ConditionType};
use crate::model::kind::API_VERSION;
use crate::model::spec::BudgetPolicySpec;
use crate::yaml;

/// Show objects and their status
///
/// Kinds answer to their name or plural, in any case: `agent`, `agents`. `all` is every kind.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show objects of this kind
    kind: String,
    /// Show only this object: NAME, or WORKSPACE/NAME
    name: Option<String>,
    /// Show only objects of this workspace
    #[arg(long, short, value_name = "NAME")]
    workspace: Option<String>,
    /// Show only objects with these labels: KEY=VALUE, KEY!=VALUE, KEY, !KEY, with commas between
    #[arg(long, short = 'l', value_name = "LABELS")]
    selector: Option<Selector>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = ListForm::Table)]
    output: ListForm,
}

/// Shows them. A named object that is not there is an error; an empty list is not.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let kind = match args.kind.as_str() {
        "all" => None,
        text => Some(select::kind(text)?),
    };
    let reader = Reader::open(host, ui)?;
    let mut list = reader.objects(kind)?;
    if let Some(fault) = &list.source_fault {
        ui.say(format_args!("note: the source: {fault}"));
    }
    if let Some(workspace) = &args.workspace {
        list.objects
            .retain(|object| object.workspace.as_ref() == Some(workspace));
    }
    if let Some(selector) = &args.selector {
        list.objects
            .retain(|object| selector.selects(object.manifest.as_ref()));
    }
    if let Some(name) = &args.name {
        list.objects.retain(|object| select::is_named(object, name));
        if list.objects.is_empty() {
            let message = format!("there is no {} '{name}'", args.kind);
            return Err(CliError::new(Kind::NotFound, message));
        }
    }
    print(args.output, &list, ui)
}

fn print(form: ListForm, list: &ObjectList, ui: &mut Ui) -> CliResult {
    match form {
        ListForm::Json => ui.json(list)?,
        ListForm::Yaml => {
            for object in &list.objects {
                ui.line("---")?;
                ui.result(&yaml::emit(&manifest(object)?))?;
            }
        }
        ListForm::Name => {
            for object in &list.objects {
                ui.line(object.reference())?;
            }
        }
        ListForm::Table | ListForm::Wide if list.objects.is_empty() => match &list.revision {
            Some(revision) => ui.say(format_args!("none at revision {}", revision.short())),
            None => ui.say("none: no revision was accepted yet"),
        },
        ListForm::Table => ui.result(&table(list, SystemClock.now()))?,
        ListForm::Wide => ui.result(&wide(list, SystemClock.now()))?,
    }
    Ok(Exit::Fine)
}

/// The object as a manifest with its status, as other tools show one.
fn manifest(object: &Object) -> CliResult<Value> {
    let mut manifest = match &object.manifest {
        Some(Value::Object(manifest)) => manifest.clone(),
        Some(_) | None => Map::from_iter([
            ("apiVersion".to_owned(), API_VERSION.into()),
            ("kind".to_owned(), object.kind.to_string().into()),
            ("metadata".to_owned(), json!({ "name": object.name })),
        ]),
    };
    let mut status = serde_json::to_value(object)
        .or_fail(Kind::Internal, "failed to write an object as JSON")?;
    if let Value::Object(status) = &mut status {
        for key in ["kind", "workspace", "name", "manifest"] {
            status.remove(key);
        }
    }
    manifest.insert("status".to_owned(), status);
    Ok(Value::Object(manifest))
}

/// What is most worth knowing of an object beside its readiness.
fn detail(object: &Object) -> String {
    let spec = object.manifest.as_ref().map(|it| &it["spec"]);
    let field = |name: &str| {
        let value = spec.and_then(|spec| spec.get(name));
        value.and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    use crate::model::kind::Kind as Of;
    match object.kind {
        Of::Ticket => {
            let status = object.ticket.map(|it| it.to_string()).unwrap_or_default();
            match field("assignee") {
                assignee if assignee.is_empty() => status,
                assignee => format!("{status}, {assignee}"),
            }
        }
        Of::Agent | Of::Space => match object.condition(ConditionType::Paused) {
            Some(paused) if paused.status == ConditionStatus::True => paused.message.clone(),
            Some(_) | None => field("adapter"),
        },
        Of::Repo => field("source"),
        Of::Adapter => field("command"),
        Of::BudgetPolicy => ceilings(spec),
        Of::Schedule => field("cron"),
        Of::Dispatch => field("agent"),
        Of::Fleet | Of::Workspace => String::new(),
    }
}

/// What a BudgetPolicy allows a month.
fn ceilings(spec: Option<&Value>) -> String {
    let read = |spec: &Value| serde_json::from_value::<BudgetPolicySpec>(spec.clone()).ok();
    let policy = spec.and_then(read);
    let ceilings = policy.iter().flat_map(BudgetPolicySpec::ceilings);
    let ceilings: Vec<String> = ceilings.map(|it| it.to_string()).collect();
    ceilings.join(", ")
}

fn table(list: &ObjectList, now: Timestamp) -> String {
    let mut table = Table::new(&["OBJECT", "READY", "REASON", "DETAIL", "AGE"]);
    for object in &list.objects {
        let (ready, reason) = readiness(object);
        let age = age(object.created_at, now);
        table.row([object.reference(), ready, reason, detail(object), age]);
    }
    table.render()
}

fn wide(list: &ObjectList, now: Timestamp) -> String {
    let mut table = Table::new(&[
        "OBJECT",
        "READY",
        "REASON",
        "DETAIL",
        "AGE",
        "UID",
        "GENERATION",
        "REVISION",
        "FILE",
    ]);
    for object in &list.objects {
        let (ready, reason) = readiness(object);
        let file = object.origin.as_ref();
        table.row([
            object.reference(),
            ready,
            reason,
            detail(object),
            age(object.created_at, now),
            object.uid.to_string(),
            object.generation.to_string(),
            object.revision.short().to_owned(),
            file.map(|it| format!("{}:{}", it.path, it.line))
                .unwrap_or_default(),
        ]);
    }
    table.render()
}
