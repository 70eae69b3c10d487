//! The order of sources.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use jiff::Timestamp;
use strum::{Display, EnumIter, EnumString, IntoEnumIterator, IntoStaticStr};

use super::provider::{Provider, Scheme};
use super::secret::Secret;
use super::store::Credentials;

/// Where a credential came from, in the order in which they are asked.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Display, EnumString, EnumIter, IntoStaticStr,
)]
#[strum(serialize_all = "camelCase")]
pub enum CredentialSource {
    /// `env` of the Adapter.
    AdapterOverride,
    /// `env` of the request for the run.
    CallerEnvironment,
    /// What `login` stored.
    DaemonStore,
    /// The daemon's own environment.
    ProcessEnvironment,
}

/// A source and what in it: safe to record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The source.
    pub source: CredentialSource,
    /// The variable's name, or the stored account's.
    pub name: String,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.source, self.name)
    }
}

/// Everything that may hold a credential.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// `env` of the Adapter.
    pub adapter: &'a BTreeMap<String, String>,
    /// `env` of the request for the run.
    pub caller: &'a BTreeMap<String, String>,
    /// What the daemon's store holds.
    pub stored: &'a Credentials,
    /// The daemon's own environment.
    pub process: &'a BTreeMap<OsString, OsString>,
    /// The instant at which stored tokens have to be valid.
    pub now: Timestamp,
}

impl std::fmt::Debug for Sources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// A credential to use.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The value.
    pub secret: Secret,
    /// How to present it.
    pub scheme: Scheme,
    /// Where it came from.
    pub place: Place,
    /// What else would have served and is passed over, in order.
    pub shadowed: Vec<Place>,
    /// When it ends; none if it doesn't say so.
    pub expires_at: Option<Timestamp>,
}

impl Resolved {
    /// The winning source.
    pub const fn source(&self) -> CredentialSource {
        self.place.source
    }
}

/// No credential can be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// No source has one.
    #[error("no credential for {provider}: run `homeostat login {provider}`, or set {variables}")]
    Missing {
        /// For whom.
        provider: Provider,
        /// The variables that would do.
        variables: String,
    },
    /// The stored one is over, and weaker sources are not taken in its place.
    #[error(
        "the stored credential {account:?} for {provider} expired at {expired_at}: run `homeostat \
         login {provider}` again, or `homeostat logout {provider}` to use another source"
    )]
    Expired {
        /// For whom.
        provider: Provider,
        /// The stored account.
        account: String,
        /// Since when.
        expired_at: Timestamp,
    },
    /// Who asks for the run names where its provider is, and the credential is not theirs: it would
    /// be shown to whoever answers there.
    #[error(
        "the credential of {place} for {provider} is not for the address that the dispatch names: \
         let the dispatch bring its own, or leave the address to the Adapter"
    )]
    AddressOfCaller {
        /// For whom.
        provider: Provider,
        /// Which.
        place: Place,
    },
    /// What the winning source has can't be sent in a header.
    #[error("the credential of {place} for {provider} holds bytes that no header may: set it anew")]
    Malformed {
        /// For whom.
        provider: Provider,
        /// Which.
        place: Place,
    },
}

/// What one source has.
struct Candidate {
    place: Place,
    scheme: Scheme,
    /// None if it is no text.
    value: Option<Secret>,
    expires_at: Option<Timestamp>,
}

/// The credential for `provider`, from the first source that has one. An empty variable counts as
/// not set; blanks around a value are cut, as line ends are easily pasted along.
///
/// # Errors
///
/// If no source has a credential, or the first that has one can't be used.
pub fn resolve(provider: Provider, sources: &Sources<'_>) -> Result<Resolved, CredentialError> {
    let mut candidates = sources.candidates(provider).into_iter();
    let Some(Candidate {
        place,
        scheme,
        value,
        expires_at,
    }) = candidates.next()
    else {
        let names: Vec<_> = provider.variables().iter().map(|(name, _)| *name).collect();
        return Err(CredentialError::Missing {
            provider,
            variables: names.join(" or "),
        });
    };
    if let Some(expired_at) = expires_at.filter(|end| *end <= sources.now) {
        return Err(CredentialError::Expired {
            provider,
            account: place.name,
            expired_at,
        });
    }
    let Some(secret) = value.filter(Secret::is_plain) else {
        return Err(CredentialError::Malformed { provider, place });
    };
    let own = CredentialSource::CallerEnvironment;
    if sources.base_source(provider) == Some(own) && place.source != own {
        return Err(CredentialError::AddressOfCaller { provider, place });
    }
    let shadowed = candidates.map(|candidate| candidate.place).collect();
    Ok(Resolved {
        secret,
        scheme,
        place,
        shadowed,
        expires_at,
    })
}

/// The names of the variables in a daemon's environment that decide something of what runs use.
pub fn variables_in(process: &BTreeMap<OsString, OsString>) -> Vec<&'static str> {
    let nothing = BTreeMap::new();
    let sources = Sources {
        adapter: &nothing,
        caller: &nothing,
        stored: &Credentials::default(),
        process,
        now: Timestamp::UNIX_EPOCH,
    };
    let is_set = |name: &&str| {
        let value = sources.variable(CredentialSource::ProcessEnvironment, name);
        value.is_some()
    };
    let names = Provider::iter().flat_map(|provider| {
        let secret = provider.variables().iter().map(|(name, _)| *name);
        secret.chain([provider.base_variable()])
    });
    names.filter(is_set).collect()
}

impl Sources<'_> {
    /// Where the provider is: what the first of the environments says that says it, else the
    /// provider's own address. What is no text is handed on as far as it is, and is no address.
    pub fn base_url(&self, provider: Provider) -> String {
        let said = self
            .base_source(provider)
            .and_then(|source| self.variable(source, provider.base_variable()));
        said.map_or_else(
            || provider.base_default().to_owned(),
            |value| value.to_string_lossy().into_owned(),
        )
    }

    /// The first of the environments that says where the provider is.
    pub fn base_source(&self, provider: Provider) -> Option<CredentialSource> {
        let name = provider.base_variable();
        CredentialSource::iter().find(|source| self.variable(*source, name).is_some())
    }

    /// A variable's value in one source, without the blanks around it; none if nothing is left of
    /// it, or the source has no variables.
    fn variable(&self, source: CredentialSource, name: &str) -> Option<&OsStr> {
        let value = match source {
            CredentialSource::AdapterOverride => OsStr::new(self.adapter.get(name)?),
            CredentialSource::CallerEnvironment => OsStr::new(self.caller.get(name)?),
            CredentialSource::DaemonStore => return None,
            CredentialSource::ProcessEnvironment => self.process.get(OsStr::new(name))?,
        };
        let value = value.to_str().map_or(value, |text| OsStr::new(text.trim()));
        (!value.is_empty()).then_some(value)
    }

    /// Everything that would serve, in the order of the sources, and of the names inside each.
    fn candidates(&self, provider: Provider) -> Vec<Candidate> {
        let of = |source| match source {
            CredentialSource::DaemonStore => self.stored_candidates(provider),
            CredentialSource::AdapterOverride
            | CredentialSource::CallerEnvironment
            | CredentialSource::ProcessEnvironment => self.variable_candidates(provider, source),
        };
        CredentialSource::iter().flat_map(of).collect()
    }

    fn stored_candidates(&self, provider: Provider) -> Vec<Candidate> {
        let stored = self.stored.of(provider);
        let candidates = stored.map(|(account, stored)| Candidate {
            place: Place {
                source: CredentialSource::DaemonStore,
                name: account.to_owned(),
            },
            scheme: stored.scheme,
            value: Some(stored.secret.clone()),
            expires_at: stored.expires_at,
        });
        candidates.collect()
    }

    fn variable_candidates(&self, provider: Provider, source: CredentialSource) -> Vec<Candidate> {
        let variables = provider.variables().iter();
        let candidates = variables.filter_map(|(name, scheme)| {
            let value = self.variable(source, name)?;
            Some(Candidate {
                place: Place {
                    source,
                    name: (*name).to_owned(),
                },
                scheme: *scheme,
                value: value.to_str().map(|value| Secret::new(value.to_owned())),
                expires_at: None,
            })
        });
        candidates.collect()
    }
}
