//! `validate`: every fault of every manifest, in one pass, without daemon, database or network.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cli::committed;
use crate::cli::error::{CliResult, Exit, Kind, OrFail};
use crate::cli::files;
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::ui::Ui;
use crate::diagnostic::render::{self, Checked, Colour};
use crate::diagnostic::{Code, Diagnostic, Span};
use crate::manifest::{self, Loaded, ManifestFile};

/// Check manifests, and report every fault with its place
///
/// Directories are searched for `.yaml` and `.yml` files; names that begin with a dot are left
/// out. Exits with 0 when everything is valid, 1 when something is not, 2 when a file cannot be
/// read.
///
/// A warning passes where a comment allows it, behind it or on the line above:
/// `# homeostat: allow(CODE) reason`. `homeostat explain CODE` says what a code means.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Check these files and directories; `-` is standard input
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
    /// Write the result to a file as well, in a form of its own; may be given again
    #[arg(long, value_name = "FORMAT=FILE", value_parser = written)]
    out: Vec<Written>,
    /// Exit with 1 also when there are only warnings
    #[arg(long)]
    deny_warnings: bool,
    /// Check what this commit, branch or tag holds at the paths, not what lies there now
    #[arg(long, value_name = "REV")]
    rev: Option<String>,
    /// Check everything, but report only what is in files that changed since this commit, branch
    /// or tag, and what was not wrong then
    #[arg(long, value_name = "REV")]
    changed_since: Option<String>,
}

/// The forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Text,
    /// For programs
    Json,
    /// Annotations of a GitHub workflow: the worst ten, the others in the job summary
    Github,
    /// SARIF 2.1.0
    Sarif,
    /// JUnit XML
    Junit,
}

impl From<Form> for Format {
    fn from(form: Form) -> Self {
        match form {
            Form::Text => Self::Text,
            Form::Json => Self::Json,
        }
    }
}

/// A report in a file.
#[derive(Clone, Debug)]
struct Written {
    format: Format,
    file: PathBuf,
}

fn written(text: &str) -> Result<Written, String> {
    let (format, file) = text
        .split_once('=')
        .filter(|(_, file)| !file.is_empty())
        .ok_or("it is FORMAT=FILE, such as sarif=findings.sarif")?;
    Ok(Written {
        format: Format::from_str(format, false)?,
        file: file.into(),
    })
}

/// Names the file of a GitHub job's summary.
const SUMMARY_VARIABLE: &str = "GITHUB_STEP_SUMMARY";

/// Checks them.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let directory = &host.environment().directory;
    let files = match &args.rev {
        Some(rev) => committed::read(&args.paths, rev, directory)?,
        None => files::read(&args.paths)?,
    };
    let mut loaded = manifest::load(&files);
    let is_narrowed = args.changed_since.is_some();
    let mut left_out = 0;
    if let Some(rev) = &args.changed_since {
        let before = committed::read_some(&args.paths, rev, directory)?;
        left_out = keep_changes(&mut loaded, &files, &before);
    }
    for written in &args.out {
        let text = rendered(&files, &loaded, written.format, Colour::Never);
        write(&written.file, &text)?;
    }
    report(&files, &loaded, args.output, ui)?;
    if is_narrowed && left_out > 0 && args.output == Format::Text {
        let findings = counted(left_out, "finding");
        ui.say(format_args!("{findings} from before left out"));
    }
    let formats = args.out.iter().map(|it| it.format).chain([args.output]);
    if formats.into_iter().any(|format| format == Format::Github) {
        summarise(&loaded, host, ui)?;
    }
    let has_denied = args.deny_warnings && !loaded.diagnostics.is_empty();
    Ok(Exit::fine_if(loaded.is_valid() && !has_denied))
}

/// Hands on the findings.
pub(crate) fn report(
    files: &[ManifestFile],
    loaded: &Loaded,
    format: Format,
    ui: &mut Ui,
) -> CliResult<()> {
    let colour = if ui.is_coloured() {
        Colour::Always
    } else {
        Colour::Never
    };
    ui.result(&rendered(files, loaded, format, colour))?;
    if matches!(format, Format::Text | Format::Github) {
        ui.flush()?;
        ui.say(summary(loaded));
    }
    Ok(())
}

fn rendered(files: &[ManifestFile], loaded: &Loaded, format: Format, colour: Colour) -> String {
    let report = loaded.report();
    match format {
        Format::Json => render::json(&report),
        Format::Github => render::github(&report),
        Format::Sarif => render::sarif(&report),
        Format::Junit => render::junit(&report),
        Format::Text => render::text(&loaded.diagnostics, &bytes_by_path(files), colour),
    }
}

/// Drops the findings that are in files as they were and were there before; how many.
fn keep_changes(loaded: &mut Loaded, files: &[ManifestFile], before: &[ManifestFile]) -> usize {
    fn said(it: &Diagnostic) -> (&Span, Code, &str) {
        (&it.span, it.code, &it.message)
    }
    let (now, then) = (bytes_by_path(files), bytes_by_path(before));
    let old = manifest::load(before);
    let old: BTreeSet<(&Span, Code, &str)> = old.diagnostics.iter().map(said).collect();
    let is_new = |it: &Diagnostic| {
        let file = it.span.file.as_str();
        now.get(file) != then.get(file) || !old.contains(&said(it))
    };
    let all = loaded.diagnostics.len();
    loaded.diagnostics.retain(is_new);
    loaded.allowed.retain(|it| is_new(&it.diagnostic));
    all - loaded.diagnostics.len()
}

fn bytes_by_path(files: &[ManifestFile]) -> BTreeMap<&str, &[u8]> {
    files
        .iter()
        .map(|file| (file.path.as_str(), file.bytes.as_slice()))
        .collect()
}

/// Writes the whole file or leaves it as it was.
fn write(path: &Path, text: &str) -> CliResult<()> {
    let failed = || format!("failed to write {}", path.display());
    let parent = path.parent().filter(|it| !it.as_os_str().is_empty());
    let permissions = std::fs::Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(permissions)
        .tempfile_in(parent.unwrap_or(Path::new(".")))
        .or_fail(Kind::Usage, failed())?;
    file.write_all(text.as_bytes())
        .or_fail(Kind::Usage, failed())?;
    let kept = file.persist(path).map_err(|error| error.error);
    kept.map(drop).or_fail(Kind::Usage, failed())
}

/// Adds what was not annotated to the job's summary.
fn summarise(loaded: &Loaded, host: &Host, ui: &mut Ui) -> CliResult<()> {
    let Some(rest) = render::github_rest(&loaded.report()) else {
        return Ok(());
    };
    let variables = &host.environment().variables;
    let path = variables.get(std::ffi::OsStr::new(SUMMARY_VARIABLE));
    let Some(path) = path.filter(|path| !path.is_empty()).map(PathBuf::from) else {
        ui.say(format_args!(
            "note: only the worst {} findings are annotations, and there is no {SUMMARY_VARIABLE} \
             for the others",
            render::ANNOTATIONS_MAX
        ));
        return Ok(());
    };
    let opened = OpenOptions::new().create(true).append(true).open(&path);
    opened
        .and_then(|mut file| file.write_all(rest.as_bytes()))
        .or_fail(Kind::Usage, format!("failed to write {}", path.display()))
}

fn summary(loaded: &Loaded) -> String {
    let Checked { files, documents } = loaded.checked;
    let (errors, warnings) = render::count(&loaded.diagnostics);
    let mut found = match (errors, warnings) {
        (0, 0) if files == 0 => return "there are no manifests".to_owned(),
        (0, 0) => "valid".to_owned(),
        (0, warnings) => format!("valid, with {}", counted(warnings, "warning")),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => {
            let errors = counted(errors, "error");
            format!("{errors}, {}", counted(warnings, "warning"))
        }
    };
    if !loaded.allowed.is_empty() {
        found = format!("{found}, {} allowed", loaded.allowed.len());
    }
    let documents = counted(documents, "document");
    format!("{found} ({documents} in {})", counted(files, "file"))
}

/// `1 file`, `2 files`.
fn counted(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}
