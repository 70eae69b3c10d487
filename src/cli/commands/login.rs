//! `login` and `logout`: what the daemon's credential store holds.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use strum::IntoEnumIterator;

use crate::cli::error::{CliError, CliResult, Exit, Kind};
use crate::cli::host::Host;
use crate::cli::secret;
use crate::cli::ui::Ui;
use crate::clock::{Clock, SystemClock};
use crate::credential::{CredentialStore, Provider, Scheme, Secret, StoreError, Stored};

/// Store a key or token for a model provider, read from standard input
///
/// It goes into a file in the daemon's data directory that only the daemon's user can read, in
/// place of an earlier one. A daemon that runs uses it for the next run.
#[derive(clap::Args, Debug)]
pub(crate) struct LoginArgs {
    /// Whose models it opens
    #[arg(value_name = "PROVIDER", value_parser = provider_parser())]
    provider: Provider,
    /// Take it from this environment variable
    #[arg(long, value_name = "NAME")]
    from_env: Option<String>,
    /// Present it as a bearer token, whatever it looks like
    #[arg(long)]
    bearer: bool,
}

/// Remove what is stored for a model provider
///
/// Exits with 1 when nothing was.
#[derive(clap::Args, Debug)]
pub(crate) struct LogoutArgs {
    /// Whose models it opens
    #[arg(value_name = "PROVIDER", value_parser = provider_parser())]
    provider: Provider,
}

/// The name that what is stored has in a run's record.
const ACCOUNT: &str = "login";

fn provider_parser() -> impl TypedValueParser<Value = Provider> {
    let names = Provider::iter().map(<&'static str>::from);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Provider>())
}

/// Stores it.
pub(crate) fn login(args: &LoginArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let provider = args.provider;
    let store = CredentialStore::new(&host.client()?.data_dir);
    let secret = match &args.from_env {
        Some(name) => of_variable(name, host)?,
        None => {
            let prompt = format!("paste the key or token for {provider}; it is not shown");
            secret::of_stdin(&prompt, ui)?
        }
    };
    let variable = args.from_env.as_deref();
    let scheme = match variable.and_then(|name| provider.scheme_of_variable(name)) {
        _ if args.bearer => Scheme::Bearer,
        Some(scheme) => scheme,
        None => provider.scheme_of(&secret),
    };
    let stored = Stored {
        secret,
        scheme,
        since: SystemClock.now(),
        expires_at: None,
    };
    let changed = store.change(|credentials| {
        credentials.remove(provider);
        credentials.put(provider, ACCOUNT, stored);
    });
    changed.map_err(|error| failed(&error))?;
    ui.say(format_args!(
        "stored for {provider}; `homeostat credentials` shows which runs use it"
    ));
    Ok(Exit::Fine)
}

/// Removes it.
pub(crate) fn logout(args: &LogoutArgs, host: &Host, ui: &mut Ui) -> CliResult {
    let provider = args.provider;
    let store = CredentialStore::new(&host.client()?.data_dir);
    let stored = store.load().map_err(|error| failed(&error))?;
    // Nothing is made where nothing is.
    let had = stored.of(provider).next().is_some()
        && store
            .change(|credentials| credentials.remove(provider))
            .map_err(|error| failed(&error))?;
    ui.say(if had {
        format!("what was stored for {provider} is removed")
    } else {
        format!("nothing was stored for {provider}")
    });
    Ok(Exit::fine_if(had))
}

fn of_variable(name: &str, host: &Host) -> CliResult<Secret> {
    let value = host.environment().variables.get(OsStr::new(name));
    let value = value.ok_or_else(|| {
        CliError::new(Kind::Usage, format!("the variable {name} is not set"))
            .hint("nothing was stored")
    })?;
    secret::taken(value.as_bytes(), &format!("what {name} holds"))
}

/// The error of a command for which the store can't be used.
pub(crate) fn failed(error: &StoreError) -> CliError {
    let kind = match error {
        StoreError::Exposed { .. } | StoreError::Malformed { .. } | StoreError::Folder { .. } => {
            Kind::Refused
        }
        StoreError::Read { .. } | StoreError::Write { .. } => Kind::Usage,
    };
    let message = "the credential store can't be used";
    CliError::caused(kind, message, error)
}
