//! `credentials`: what is stored, which of all sources a run would use, and whether it works.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::login::failed;
use crate::cli::adapters::{Declared, declared};
use crate::cli::args::SourceArgs;
use crate::cli::client::runtime;
use crate::cli::error::{CliResult, Exit};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::show::age;
use crate::cli::surroundings::Surroundings;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::credential::{
    CredentialSource, CredentialStore, Credentials, Provider, Scheme, Sources, resolve,
};
use crate::host::{KeyVerdict, try_key};
use crate::model::chain::chain;

/// Show what is stored for model providers, and which credential a run would use
///
/// Never the values. The order is fixed: what the Adapter sets, the environment of the request for the run, what
/// `login` stored, the daemon's environment. Exits with 1 when no run of an Adapter has one, or
/// with --test when one is not taken.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Ask each provider one question that costs nothing whether it takes the credential
    #[arg(long)]
    test: bool,
    #[command(flatten)]
    source: SourceArgs,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Everything that is shown.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown {
    stored: Vec<Kept>,
    used: Vec<Use>,
}

/// One stored credential.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    provider: Provider,
    account: String,
    kind: Scheme,
    since: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// Which credential runs of an Adapter would use.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Use {
    /// The Adapter; none: one that sets none itself.
    adapter: Option<String>,
    provider: Provider,
    /// The winner, as a run's record names it.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
    /// What else would serve, in order.
    passed_over: Vec<String>,
    /// Why it wins, or why there is none.
    why: String,
    /// What the provider says to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    test: Option<Test>,
    #[serde(skip)]
    is_good: bool,
}

/// What a provider says to a credential.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Test {
    #[serde(skip_serializing_if = "Option::is_none")]
    base_url: Option<String>,
    result: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
}

/// Shows it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let store = CredentialStore::new(&host.client()?.data_dir);
    let stored = store.load().map_err(|error| failed(&error))?;
    let adapters = declared(&args.source, host, ui)?;
    let surroundings = Surroundings::look(host)?;
    if !surroundings.is_daemons {
        ui.say("note: the environment is this command's; a daemon's may be another");
    }
    let now = SystemClock.now();
    let mut used = Vec::new();
    for (adapter, provider, env) in users(&adapters, &stored) {
        let sources = Sources {
            adapter: env,
            caller: &BTreeMap::new(),
            stored: &stored,
            process: &surroundings.variables,
            now,
        };
        let mut used_here = look(adapter, provider, &sources);
        if args.test && used_here.is_good {
            let test = test(provider, &sources, &surroundings)?;
            used_here.is_good = test.result == OK;
            used_here.test = Some(test);
        }
        used.push(used_here);
    }
    let shown = Shown {
        stored: kept(&stored),
        used,
    };
    match args.output {
        Form::Json => ui.json(&shown)?,
        Form::Text => ui.result(&text(&shown, now))?,
    }
    Ok(Exit::fine_if(shown.used.iter().all(|it| it.is_good)))
}

const NOTHING: &BTreeMap<String, String> = &BTreeMap::new();

/// The Adapters that need a credential, or any Adapter when none is declared; and any that would
/// use what is stored for another provider.
fn users<'a>(
    adapters: &'a [Declared],
    stored: &Credentials,
) -> Vec<(Option<&'a str>, Provider, &'a BTreeMap<String, String>)> {
    let own = adapters.iter().filter_map(|(name, spec)| {
        let provider = Provider::of_adapter(spec.r#type)?;
        Some((Some(name.as_str()), provider, &spec.env))
    });
    let mut users: Vec<_> = own.collect();
    if users.is_empty() {
        users.push((None, Provider::Anthropic, NOTHING));
    }
    for (provider, ..) in stored.iter() {
        if !users.iter().any(|(_, of, _)| *of == provider) {
            users.push((None, provider, NOTHING));
        }
    }
    users
}

fn look(adapter: Option<&str>, provider: Provider, sources: &Sources<'_>) -> Use {
    let resolved = resolve(provider, sources);
    let (source, passed_over, why) = match &resolved {
        Ok(resolved) => {
            let passed_over = resolved.shadowed.iter().map(ToString::to_string);
            let source = resolved.place.to_string();
            (
                Some(source),
                passed_over.collect(),
                why(resolved.source()).to_owned(),
            )
        }
        Err(error) => (None, Vec::new(), error.to_string()),
    };
    Use {
        adapter: adapter.map(ToOwned::to_owned),
        provider,
        source,
        passed_over,
        why,
        test: None,
        is_good: resolved.is_ok(),
    }
}

/// Why that source wins.
const fn why(source: CredentialSource) -> &'static str {
    match source {
        CredentialSource::AdapterOverride => "what the Adapter sets goes before all else",
        CredentialSource::CallerEnvironment => "the request sets it, and the Adapter does not",
        CredentialSource::DaemonStore => "it is stored, and the Adapter sets none",
        CredentialSource::ProcessEnvironment => "the Adapter sets none, and none is stored",
    }
}

const OK: &str = "ok";

fn test(provider: Provider, sources: &Sources<'_>, surroundings: &Surroundings) -> CliResult<Test> {
    if let Some(name) = hidden(provider, sources, surroundings) {
        let detail = format!("only the daemon knows {name}; test in its environment");
        return Ok(Test {
            base_url: None,
            result: "unclear",
            detail: Some(detail),
        });
    }
    let (result, detail) = match runtime()?.block_on(try_key(provider, sources)) {
        Ok((_, KeyVerdict::Accepted)) => (OK, None),
        Ok((_, KeyVerdict::Refused(status))) => ("refused", Some(format!("it answers {status}"))),
        Ok((_, KeyVerdict::Unclear(status))) => (
            "unclear",
            Some(format!(
                "it answers {status}, which says nothing of the key"
            )),
        ),
        Ok((_, KeyVerdict::Unreachable(why))) => ("unreachable", Some(why)),
        Err(error) => ("unreachable", Some(format!("can't {}", chain(&error)))),
    };
    Ok(Test {
        base_url: Some(sources.base_url(provider)),
        result,
        detail,
    })
}

/// What it takes to ask the provider and only the daemon can read.
fn hidden(
    provider: Provider,
    sources: &Sources<'_>,
    surroundings: &Surroundings,
) -> Option<String> {
    let place = resolve(provider, sources).ok()?.place;
    if surroundings.is_daemons && place.source == CredentialSource::ProcessEnvironment {
        return Some(place.name);
    }
    let said = sources.base_source(provider)?;
    let is_hidden = surroundings.is_daemons && said == CredentialSource::ProcessEnvironment;
    is_hidden.then(|| provider.base_variable().to_owned())
}

fn kept(stored: &Credentials) -> Vec<Kept> {
    let kept = stored.iter().map(|(provider, account, stored)| Kept {
        provider,
        account: account.to_owned(),
        kind: stored.scheme,
        since: stored.since,
        expires_at: stored.expires_at,
    });
    kept.collect()
}

fn text(shown: &Shown, now: Timestamp) -> String {
    let mut stored = Table::new(&["STORED", "ACCOUNT", "KIND", "SINCE", "EXPIRES"]);
    for kept in &shown.stored {
        stored.row([
            kept.provider.to_string(),
            kept.account.clone(),
            kept.kind.to_string(),
            age(kept.since, now),
            kept.expires_at
                .map(|end| end.to_string())
                .unwrap_or_default(),
        ]);
    }
    let mut used = Table::new(&["ADAPTER", "PROVIDER", "USES", "WHY", "PASSED OVER", "TEST"]);
    for each in &shown.used {
        used.row([
            each.adapter.clone().unwrap_or_default(),
            each.provider.to_string(),
            each.source.clone().unwrap_or_default(),
            each.why.clone(),
            each.passed_over.join(", "),
            each.test.as_ref().map(Test::in_words).unwrap_or_default(),
        ]);
    }
    let stored = match stored.is_empty() {
        true => "nothing is stored\n".to_owned(),
        false => stored.render(),
    };
    format!("{stored}\n{}", used.render())
}

impl Test {
    fn in_words(&self) -> String {
        let detail = self.detail.as_ref();
        let detail = detail.map(|it| format!(" ({it})")).unwrap_or_default();
        let place = self.base_url.as_ref();
        let place = place.map(|it| format!(" at {it}")).unwrap_or_default();
        format!("{}{place}{detail}", self.result)
    }
}
