use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

fn environment(uid: u32, variables: &[(&str, &str)]) -> Environment {
    let variables = variables
        .iter()
        .map(|(name, value)| (OsString::from(name), OsString::from(value)))
        .collect::<BTreeMap<_, _>>();
    Environment {
        variables,
        uid,
        directory: PathBuf::from("/work-dir"),
    }
}

fn flags(settings: &[(Setting, &str)]) -> Draft {
    let mut draft = Draft::new();
    for (setting, text) in settings {
        draft.set(*setting, text, Path::new("/work-dir")).unwrap();
    }
    draft
}

/// A settings file that is removed at the end.
fn file(text: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    file
}

#[test]
fn flags_win_over_variables_and_variables_over_the_file() {
    let file = file("logLevel: error\nlogFormat: json\ndataDir: /from-file\nscanSecs: 7\n");
    let environment = environment(
        1000,
        &[
            ("HOMEOSTAT_CONFIG_LOG_LEVEL", "warn"),
            ("HOMEOSTAT_CONFIG_DATA_DIR", "from-variable"),
            ("HOMEOSTAT_RUN_ID", "not ours"),
        ],
    );
    let flags = flags(&[(Setting::LogLevel, "debug"), (Setting::Source, "manifests")]);
    let layers = Layers::load(flags, Some(file.path()), environment).unwrap();
    let resolved = layers.daemon().unwrap();
    assert_eq!(
        resolved,
        Resolved {
            client: Client {
                data_dir: PathBuf::from("/work-dir/from-variable"),
                socket: PathBuf::from("/work-dir/from-variable/homeostat.sock"),
            },
            source: SourceSetting::Directory {
                path: PathBuf::from("/work-dir/manifests"),
                inside: None,
            },
            log: Log {
                format: LogFormat::Json,
                level: LogLevel::Debug,
            },
            worktree_backend: WorktreeBackend::Reflink,
            sandbox: SandboxSwitch::On,
            run_uid: None,
            debounce: Duration::from_millis(300),
            resync: Duration::from_secs(300),
            scan: Duration::from_secs(7),
            poll: Duration::from_secs(60),
        }
    );
}

#[test]
fn state_lies_where_the_host_keeps_state() {
    for (uid, variables, expected) in [
        (0, vec![("HOME", "/root")], Some("/var/lib/homeostat")),
        (1, vec![("HOME", "/h")], Some("/h/.local/state/homeostat")),
        (1, vec![("XDG_STATE_HOME", "/s")], Some("/s/homeostat")),
        (1, vec![("HOME", "relative")], None),
        (1, vec![], None),
    ] {
        let environment = environment(uid, &variables);
        let layers = Layers::load(Draft::new(), None, environment).unwrap();
        let data_dir = layers.client().ok().map(|client| client.data_dir);
        assert_eq!(data_dir, expected.map(PathBuf::from), "{uid} {variables:?}");
    }
}

#[test]
fn a_source_is_one_place() {
    let of = |settings: &[(Setting, &str)]| {
        let layers = Layers::load(flags(settings), None, environment(1, &[])).unwrap();
        layers.source().map_err(|error| error.to_string())
    };
    let repository = |reference: &str, inside: Option<&str>| {
        Ok(SourceSetting::Repository {
            path: PathBuf::from("/r"),
            reference: reference.to_owned(),
            inside: inside.map(ToOwned::to_owned),
        })
    };
    let repo = (Setting::SourceRepo, "/r");
    assert_eq!(of(&[repo]), repository("HEAD", None));
    assert_eq!(
        of(&[
            repo,
            (Setting::SourceRef, "main"),
            (Setting::SourcePath, "fleet/")
        ]),
        repository("main", Some("fleet"))
    );
    assert_eq!(
        of(&[(Setting::Source, "/d"), (Setting::SourcePath, "fleet")]),
        Ok(SourceSetting::Directory {
            path: PathBuf::from("/d"),
            inside: Some("fleet".to_owned()),
        })
    );
    let remote = of(&[(Setting::SourceRepo, "https://ann:secret@h/fleet")]);
    assert!(matches!(&remote, Ok(SourceSetting::Remote { reference, .. }) if reference == "HEAD"));
    assert!(!format!("{remote:?}").contains("secret"), "{remote:?}");
    for (settings, wrong) in [
        (
            vec![(Setting::SourceRepo, "ext://ann:secret@h/fleet")],
            ConfigError::BadUrl,
        ),
        (vec![], ConfigError::NoSource),
        (vec![repo, (Setting::Source, "/d")], ConfigError::TwoSources),
        (
            vec![(Setting::SourceRef, "main")],
            ConfigError::NoSourceRepo,
        ),
        (
            vec![(Setting::Source, "/d"), (Setting::SourceRef, "main")],
            ConfigError::NoSourceRepo,
        ),
        (vec![(Setting::SourcePath, "fleet")], ConfigError::NoSource),
    ] {
        assert_eq!(of(&settings), Err(wrong.to_string()), "{settings:?}");
    }
}

#[test]
fn what_is_no_setting_is_an_error() {
    let load = |variables| {
        Layers::load(Draft::new(), None, environment(1, variables)).map_err(|error| {
            let hint = error.hint().unwrap_or_default();
            format!("{error}; {hint}")
        })
    };
    assert_eq!(
        load(&[("HOMEOSTAT_CONFIG_DATA_DIRS", "/d")]).map(|_| ()),
        Err(
            "HOMEOSTAT_CONFIG_DATA_DIRS is no setting; did you mean HOMEOSTAT_CONFIG_DATA_DIR?"
                .into()
        )
    );
    assert_eq!(
        load(&[("HOMEOSTAT_CONFIG_SANDBOX", "maybe")]).map(|_| ()),
        Err("the value of HOMEOSTAT_CONFIG_SANDBOX cannot be used; ".into())
    );
}

#[test]
fn the_file_reports_every_fault_with_its_place() {
    let file = file("dataDri: /d\nsandbox: maybe\nscanSecs: \"7\"\nresyncSecs: 0\n--- {}\n");
    let error = Layers::load(Draft::new(), Some(file.path()), environment(1, &[])).unwrap_err();
    let report = error
        .to_string()
        .replace(&file.path().display().to_string(), "FILE");
    let places: Vec<&str> = report
        .lines()
        .filter(|it| it.contains("--> "))
        .map(str::trim)
        .collect();
    assert_eq!(
        places,
        [
            "--> FILE:1:1",
            "--> FILE:2:10",
            "--> FILE:3:11",
            "--> FILE:4:13",
            "--> FILE:5:5"
        ],
        "{report}"
    );
    assert!(report.contains("did you mean `dataDir`?"), "{report}");
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let missing = Path::new("/nonexistent/homeostat.yaml");
    let error = Layers::load(Draft::new(), Some(missing), environment(1, &[])).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to read /nonexistent/homeostat.yaml"
    );
}

#[test]
fn a_socket_path_fits_the_kernel() {
    let long = format!("/{}", "d".repeat(120));
    let layers = Layers::load(
        flags(&[(Setting::DataDir, &long)]),
        None,
        environment(1, &[]),
    );
    assert!(matches!(
        layers.unwrap().client(),
        Err(ConfigError::SocketPathTooLong { length: 136, .. })
    ));
}
