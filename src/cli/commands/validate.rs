//! `validate`: every fault of every manifest, in one pass, without daemon, database or network.

use std::collections::BTreeMap;

use crate::cli::error::{CliResult, Exit};
use crate::cli::files;
use crate::cli::form::Form;
use crate::cli::ui::Ui;
use crate::diagnostic::render::{self, Checked, Colour};
use crate::manifest::{self, Loaded, ManifestFile};

/// Check manifests, and report every fault with its place
///
/// Directories are searched for `.yaml` and `.yml` files; names that begin with a dot are left
/// out. Exits with 0 when everything is valid, 1 when something is not, 2 when a file cannot be
/// read.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Check these files and directories; `-` is standard input
    #[arg(value_name = "PATH", default_value = ".")]
    paths: Vec<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
    /// Exit with 1 also when there are only warnings
    #[arg(long)]
    deny_warnings: bool,
}

/// Checks them.
pub(crate) fn run(args: &Args, ui: &mut Ui) -> CliResult {
    let files = files::read(&args.paths)?;
    let loaded = manifest::load(&files);
    report(&files, &loaded, args.output, ui)?;
    let has_denied = args.deny_warnings && !loaded.diagnostics.is_empty();
    Ok(Exit::fine_if(loaded.is_valid() && !has_denied))
}

/// Hands on the findings.
pub(crate) fn report(
    files: &[ManifestFile],
    loaded: &Loaded,
    form: Form,
    ui: &mut Ui,
) -> CliResult<()> {
    match form {
        Form::Json => ui.result(&render::json(&loaded.diagnostics, loaded.checked)),
        Form::Text => {
            let sources: BTreeMap<&str, &[u8]> = files
                .iter()
                .map(|file| (file.path.as_str(), file.bytes.as_slice()))
                .collect();
            let colour = if ui.is_coloured() {
                Colour::Always
            } else {
                Colour::Never
            };
            ui.result(&render::text(&loaded.diagnostics, &sources, colour))?;
            ui.flush()?;
            ui.say(summary(loaded));
            Ok(())
        }
    }
}

fn summary(loaded: &Loaded) -> String {
    let Checked { files, documents } = loaded.checked;
    let (errors, warnings) = render::count(&loaded.diagnostics);
    let found = match (errors, warnings) {
        (0, 0) if files == 0 => return "there are no manifests".to_owned(),
        (0, 0) => "valid".to_owned(),
        (0, warnings) => format!("valid, with {}", counted(warnings, "warning")),
        (errors, 0) => counted(errors, "error"),
        (errors, warnings) => {
            let errors = counted(errors, "error");
            format!("{errors}, {}", counted(warnings, "warning"))
        }
    };
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
