use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use jiff::Timestamp;
use strum::IntoEnumIterator;

use super::{
    CredentialError, CredentialSource, CredentialStore, Credentials, FILE_NAME, Provider, Resolved,
    SECRET_BYTES_MAX, Scheme, Secret, SecretError, Sources, StoreError, Stored, resolve,
    variables_in,
};

const KEY: &str = "ANTHROPIC_API_KEY";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn stored(secret: &str, expires_at: Option<&str>) -> Stored {
    Stored {
        secret: Secret::new(secret.to_owned()),
        scheme: Scheme::Bearer,
        since: at("2026-11-01T00:00:00Z"),
        expires_at: expires_at.map(at),
    }
}

/// All four sources, each of which may hold one credential.
#[derive(Default)]
struct Host {
    adapter: BTreeMap<String, String>,
    caller: BTreeMap<String, String>,
    stored: Credentials,
    process: BTreeMap<OsString, OsString>,
}

impl Host {
    /// A host on which the given sources hold a credential that is named after its source.
    fn with(sources: &[CredentialSource]) -> Self {
        let mut host = Self::default();
        for source in sources {
            let value = source.to_string();
            match source {
                CredentialSource::AdapterOverride => {
                    host.adapter.insert(KEY.to_owned(), value);
                }
                CredentialSource::CallerEnvironment => {
                    host.caller.insert(KEY.to_owned(), value);
                }
                CredentialSource::DaemonStore => {
                    host.stored
                        .put(Provider::Anthropic, "me", stored(&value, None));
                }
                CredentialSource::ProcessEnvironment => {
                    host.process.insert(KEY.into(), value.into());
                }
            }
        }
        host
    }

    fn sources(&self) -> Sources<'_> {
        Sources {
            adapter: &self.adapter,
            caller: &self.caller,
            stored: &self.stored,
            process: &self.process,
            now: at("2026-11-30T12:00:00Z"),
        }
    }

    fn resolve(&self) -> Result<Resolved, CredentialError> {
        resolve(Provider::Anthropic, &self.sources())
    }
}

#[test]
fn the_order_of_sources_is_fixed_whichever_of_them_have_one() {
    let all: Vec<_> = CredentialSource::iter().collect();
    assert_eq!(all.len(), 4);
    for set in 1..16_usize {
        let present: Vec<_> = all
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, s)| *s)
            .collect();
        let resolved = Host::with(&present).resolve().unwrap();
        assert_eq!(resolved.source(), present[0]);
        assert_eq!(resolved.secret.expose(), present[0].to_string());
        let shadowed: Vec<_> = resolved.shadowed.iter().map(|place| place.source).collect();
        assert_eq!(shadowed, present[1..]);
    }
}

#[test]
fn none_is_a_typed_error_that_says_what_to_do() {
    let error = Host::default().resolve().unwrap_err();
    assert_eq!(
        error.to_string(),
        "no credential for anthropic: run `homeostat login anthropic`, or set \
         ANTHROPIC_AUTH_TOKEN or ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN"
    );
}

#[test]
fn empty_variables_are_not_set_and_blanks_are_cut() {
    let mut host = Host::with(&[CredentialSource::ProcessEnvironment]);
    host.adapter.insert(KEY.to_owned(), " \n".to_owned());
    host.caller
        .insert("ANTHROPIC_AUTH_TOKEN".to_owned(), "abc\n".to_owned());
    host.caller.insert(KEY.to_owned(), "def".to_owned());
    let resolved = host.resolve().unwrap();
    assert_eq!(
        (resolved.secret.expose(), resolved.scheme),
        ("abc", Scheme::Bearer)
    );
    assert_eq!(
        resolved.place.to_string(),
        "callerEnvironment (ANTHROPIC_AUTH_TOKEN)"
    );
    let shadowed: Vec<_> = resolved.shadowed.iter().map(ToString::to_string).collect();
    assert_eq!(
        shadowed,
        [
            "callerEnvironment (ANTHROPIC_API_KEY)",
            "processEnvironment (ANTHROPIC_API_KEY)"
        ]
    );
}

#[test]
fn the_nearest_word_of_where_the_provider_is_counts_and_an_empty_one_is_none() {
    let own = "https://api.anthropic.com";
    for (adapter, caller, process, expected) in [
        ("http://a", "http://c", "http://p", "http://a"),
        ("", "http://c", "http://p", "http://c"),
        (" \n", "http://c", "", "http://c"),
        ("", "\t", "http://p", "http://p"),
        ("", "", " http://p\n", "http://p"),
        ("", "", "  ", own),
        ("", "", "", own),
    ] {
        let mut host = Host::default();
        let name = Provider::Anthropic.base_variable();
        host.adapter.insert(name.to_owned(), adapter.to_owned());
        host.caller.insert(name.to_owned(), caller.to_owned());
        host.process.insert(name.into(), process.into());
        let said = host.sources().base_url(Provider::Anthropic);
        assert_eq!(said, expected, "{adapter:?} {caller:?} {process:?}");
    }
    let host = Host::with(&CredentialSource::iter().collect::<Vec<_>>());
    assert_eq!(host.sources().base_url(Provider::Anthropic), own);
    // It is somewhere, only not where it can be reached: the default would be somewhere else.
    let mut host = Host::default();
    let name = Provider::Anthropic.base_variable();
    let no_text = OsString::from_vec(vec![b'h', 0xFF]);
    host.process.insert(name.into(), no_text);
    assert_eq!(host.sources().base_url(Provider::Anthropic), "h\u{fffd}");
}

#[test]
fn the_variables_that_say_something_are_named() {
    let set = [
        ("ANTHROPIC_API_KEY", "k"),
        ("ANTHROPIC_BASE_URL", "http://x"),
        ("GEMINI_API_KEY", " "),
        ("PATH", "/bin"),
    ];
    let process = set.map(|(name, value)| (OsString::from(name), OsString::from(value)));
    let named = variables_in(&process.into_iter().collect());
    assert_eq!(named, ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]);
}

#[test]
fn what_no_header_may_hold_is_refused_and_not_passed_over() {
    let mut host = Host::with(&[CredentialSource::DaemonStore]);
    host.adapter.insert(KEY.to_owned(), "a\nb".to_owned());
    let error = host.resolve().unwrap_err();
    assert!(
        matches!(error, CredentialError::Malformed { .. }),
        "{error}"
    );
    assert!(!error.to_string().contains("a\nb"), "{error}");
    let mut host = Host::default();
    host.process
        .insert(KEY.into(), OsString::from_vec(vec![b'a', 0xFF]));
    let error = host.resolve().unwrap_err();
    assert!(
        matches!(error, CredentialError::Malformed { .. }),
        "{error}"
    );
}

#[test]
fn an_expired_token_is_an_error_and_nothing_weaker_is_taken() {
    let mut host = Host::with(&[CredentialSource::ProcessEnvironment]);
    for (expires, is_valid) in [
        ("2026-11-30T12:00:01Z", true),
        ("2026-11-30T12:00:00Z", false),
        ("2025-01-01T00:00:00Z", false),
    ] {
        host.stored
            .put(Provider::Anthropic, "me", stored("t", Some(expires)));
        let resolved = host.resolve();
        assert_eq!(resolved.is_ok(), is_valid, "{expires}");
        if let Err(error) = resolved {
            let (account, expired_at) = ("me".to_owned(), at(expires));
            let provider = Provider::Anthropic;
            assert_eq!(
                error,
                CredentialError::Expired {
                    provider,
                    account,
                    expired_at
                }
            );
        }
    }
    // A stronger source doesn't care.
    host.adapter.insert(KEY.to_owned(), "k".to_owned());
    assert_eq!(host.resolve().unwrap().secret.expose(), "k");
}

#[test]
fn nothing_prints_a_secret() {
    let mut host = Host::with(&[CredentialSource::DaemonStore]);
    host.stored
        .put(Provider::Anthropic, "me", stored("hidden-value", None));
    let shown = format!("{:?} {:?}", host.stored, host.resolve().unwrap());
    assert!(!shown.contains("hidden-value"), "{shown}");
}

fn store() -> (tempfile::TempDir, CredentialStore) {
    #[expect(clippy::disallowed_methods, reason = "a test's own directory")]
    let folder = tempfile::tempdir().unwrap();
    let store = CredentialStore::new(folder.path());
    (folder, store)
}

#[test]
fn the_store_keeps_what_it_is_given_for_its_user_alone() {
    let (folder, store) = store();
    assert_eq!(store.load().unwrap().iter().count(), 0);
    for _ in 0..2 {
        let change = |credentials: &mut Credentials| {
            let end = Some("2027-01-01T00:00:00Z");
            credentials.put(Provider::Google, "b", stored("one", end));
            credentials.put(Provider::Anthropic, "me", stored("two", None));
        };
        store.change(change).unwrap();
        let mode = fs::metadata(folder.path().join(FILE_NAME)).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }
    let read = store.load().unwrap();
    let shown: Vec<_> = read
        .iter()
        .map(|(provider, account, s)| (provider, account, s.secret.expose(), s.expires_at))
        .collect();
    let end = Some(at("2027-01-01T00:00:00Z"));
    assert_eq!(
        shown,
        [
            (Provider::Anthropic, "me", "two", None),
            (Provider::Google, "b", "one", end)
        ]
    );
    let remove = |credentials: &mut Credentials| credentials.remove(Provider::Google);
    assert!(store.change(remove).unwrap() && !store.change(remove).unwrap());
    assert_eq!(store.load().unwrap().iter().count(), 1);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_store_that_others_can_read_is_refused() {
    let (folder, store) = store();
    store.change(|_| ()).unwrap();
    let path = folder.path().join(FILE_NAME);
    for mode in [0o640, 0o604, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let error = store.load().unwrap_err();
        assert!(matches!(error, StoreError::Exposed { .. }), "{error}");
        let error = store.change(|_| ()).unwrap_err();
        assert!(matches!(error, StoreError::Exposed { .. }), "{error}");
    }
    fs::remove_file(&path).unwrap();
    symlink("elsewhere", &path).unwrap();
    assert!(matches!(store.load(), Err(StoreError::Read { .. })));
}

#[test]
fn nothing_is_stored_where_others_could_replace_it() {
    let (folder, store) = store();
    for mode in [0o722, 0o777, 0o1777] {
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
        let error = store.change(|_| ()).unwrap_err();
        assert!(matches!(error, StoreError::Folder { .. }), "{error}");
    }
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    let below = folder.path().join("not/there");
    CredentialStore::new(&below).change(|_| ()).unwrap();
    assert_eq!(fs::metadata(&below).unwrap().mode() & 0o7777, 0o711);
}

#[test]
fn of_changes_at_once_none_is_lost() {
    let (_folder, store) = store();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let store = &store;
            scope.spawn(move || {
                let change = |credentials: &mut Credentials| {
                    let account = number.to_string();
                    credentials.put(Provider::Openai, &account, stored("x", None));
                };
                store.change(change).unwrap();
            });
        }
    });
    assert_eq!(store.load().unwrap().iter().count(), 8);
}

#[test]
fn what_is_given_as_a_secret_is_one_plain_word() {
    let long = "x".repeat(SECRET_BYTES_MAX + 1);
    for (input, expected) in [
        (&b"sk-ant-api03-a_b"[..], Ok("sk-ant-api03-a_b")),
        (b" \tkey\r\n", Ok("key")),
        (&long.as_bytes()[1..], Ok(&long[1..])),
        (b"", Err(SecretError::Empty)),
        (b" \r\n\t", Err(SecretError::Empty)),
        (b"two\nlines", Err(SecretError::NotPlain)),
        (b"two words", Err(SecretError::NotPlain)),
        (b"nul\0inside", Err(SecretError::NotPlain)),
        (b"nul\0", Err(SecretError::NotPlain)),
        ("schl\u{fc}ssel".as_bytes(), Err(SecretError::NotPlain)),
        (b"no\xFFtext", Err(SecretError::NotPlain)),
        (long.as_bytes(), Err(SecretError::TooLong)),
    ] {
        let secret = Secret::of_input(input);
        let shown = secret.as_ref().map(Secret::expose);
        assert_eq!(shown, expected.as_ref().copied(), "{input:?}");
    }
}

#[test]
fn a_secrets_text_and_its_variable_say_how_it_is_presented() {
    let of = |provider: Provider, text: &str| provider.scheme_of(&Secret::new(text.to_owned()));
    assert_eq!(of(Provider::Anthropic, "sk-ant-oat01-x"), Scheme::Bearer);
    assert_eq!(of(Provider::Anthropic, "sk-ant-api03-x"), Scheme::ApiKey);
    assert_eq!(of(Provider::Openai, "sk-x"), Scheme::Bearer);
    assert_eq!(of(Provider::Google, "x"), Scheme::ApiKey);
    let variable = |name| Provider::Anthropic.scheme_of_variable(name);
    assert_eq!(variable("ANTHROPIC_AUTH_TOKEN"), Some(Scheme::Bearer));
    assert_eq!(variable("OPENAI_API_KEY"), None);
}

#[test]
fn a_file_that_is_not_ours_is_refused_without_being_quoted() {
    let (folder, store) = store();
    let path = folder.path().join(FILE_NAME);
    for text in [
        "",
        "hidden-value",
        r#"{"version":1,"credentials":[{"provider":"hidden-value"}]}"#,
        r#"{"version":2,"credentials":[]}"#,
        r#"{"version":1,"credentials":[],"more":"hidden-value"}"#,
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let error = store.load().unwrap_err();
        assert!(
            matches!(error, StoreError::Malformed { .. }),
            "{text}: {error}"
        );
        assert!(
            !format!("{error:?} {error}").contains("hidden-value"),
            "{error:?}"
        );
    }
}

#[test]
fn a_key_is_shown_to_no_address_that_only_the_caller_names() {
    let nothing = BTreeMap::new();
    let own = |name: &str, value: &str| BTreeMap::from([(name.to_owned(), value.to_owned())]);
    let address = own("ANTHROPIC_BASE_URL", "http://elsewhere");
    let mut both = address.clone();
    both.extend(own("ANTHROPIC_API_KEY", "brought"));
    let key = own("ANTHROPIC_API_KEY", "kept");
    let mut adapter = key.clone();
    adapter.extend(address.clone());
    let host = BTreeMap::from([("ANTHROPIC_API_KEY".into(), "host".into())]);
    for (adapter, caller, expected) in [
        (&nothing, &address, None),
        (&key, &address, None),
        (&nothing, &both, Some("brought")),
        // The Adapter's own address counts, whatever the caller says.
        (&adapter, &address, Some("kept")),
        (&nothing, &nothing, Some("host")),
    ] {
        let sources = Sources {
            adapter,
            caller,
            stored: &Credentials::default(),
            process: &host,
            now: at("2026-11-30T00:00:00Z"),
        };
        let resolved = resolve(Provider::Anthropic, &sources);
        match (&resolved, expected) {
            (Ok(resolved), Some(expected)) => assert_eq!(resolved.secret.expose(), expected),
            (Err(CredentialError::AddressOfCaller { .. }), None) => {}
            _ => panic!("{resolved:?}, not {expected:?}"),
        }
    }
}
