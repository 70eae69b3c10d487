//! `homeostat.yaml`: one flat mapping of settings.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::resolve::ConfigError;
use super::setting::{Draft, Form, Setting};
use crate::diagnostic::render::{self, Colour};
use crate::diagnostic::{Code, Diagnostic, Range, Severity, did_you_mean, quote, sort};
use crate::yaml::{self, NodeRef, Value};

/// The settings of the file at `path`. Relative paths in it start where it lies.
///
/// # Errors
/// When it cannot be read, or has faults: all of them, each with its place.
pub(super) fn read(path: &Path) -> Result<Draft, ConfigError> {
    match std::fs::read(path) {
        Ok(bytes) => decode(path, &bytes),
        Err(source) => Err(ConfigError::ReadFile {
            path: path.to_owned(),
            source,
        }),
    }
}

/// As [`read`]; a file that is not there makes no settings.
///
/// # Errors
/// As [`read`].
pub(super) fn read_if_there(path: &Path) -> Result<Draft, ConfigError> {
    match read(path) {
        Err(ConfigError::ReadFile { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(Draft::new())
        }
        read => read,
    }
}

fn decode(path: &Path, bytes: &[u8]) -> Result<Draft, ConfigError> {
    let file = path.display().to_string();
    let base = path.parent().unwrap_or(Path::new("/"));
    let parsed = yaml::parse(&file, bytes);
    let mut decoder = Decoder {
        file: &file,
        base,
        draft: Draft::new(),
        faults: parsed.diagnostics,
    };
    for document in &parsed.documents {
        if document.index == 0 {
            decoder.settings(document.root());
        } else {
            let range = document.root().range();
            decoder.fault(
                Code::TooManyDocuments,
                range,
                "a second document".to_owned(),
            );
        }
    }
    let Decoder {
        draft, mut faults, ..
    } = decoder;
    // Warnings are about how other programs read text; only we read this file.
    faults.retain(|fault| fault.severity() == Severity::Error);
    if faults.is_empty() {
        return Ok(draft);
    }
    sort(&mut faults);
    let sources = BTreeMap::from([(file.as_str(), bytes)]);
    Err(ConfigError::InvalidFile {
        path: path.to_owned(),
        report: render::text(&faults, &sources, Colour::Never),
    })
}

struct Decoder<'f> {
    file: &'f str,
    base: &'f Path,
    draft: Draft,
    faults: Vec<Diagnostic>,
}

impl Decoder<'_> {
    fn settings(&mut self, root: NodeRef<'_>) {
        if !matches!(root.value(), Value::Mapping(_)) {
            let message = "settings are a mapping of names to values".to_owned();
            self.fault(Code::WrongType, root.range(), message);
            return;
        }
        for (key, range, value) in root.entries() {
            match key.parse() {
                Ok(setting) => self.setting(setting, value),
                Err(strum::ParseError::VariantNotFound) => self.unknown(key, range),
            }
        }
    }

    fn setting(&mut self, setting: Setting, value: NodeRef<'_>) {
        let is_number = matches!(setting.form(), Form::Number { .. });
        let text = match value.value() {
            Value::Integer(number) if is_number => number.to_string(),
            Value::String(text) if !is_number => text.clone().into_owned(),
            Value::Null
            | Value::Bool(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::String(_)
            | Value::Sequence(_)
            | Value::Mapping(_) => {
                let message = format!("{setting} takes {}", setting.expected());
                self.fault(Code::WrongType, value.range(), message);
                return;
            }
        };
        if self.draft.set(setting, &text, self.base).is_err() {
            let code = if is_number {
                Code::OutOfRange
            } else if setting.words().is_empty() {
                Code::BadLength
            } else {
                Code::UnknownValue
            };
            let message = format!(
                "{} cannot be used: {setting} takes {}",
                quote(&text),
                setting.expected()
            );
            self.fault(code, value.range(), message);
        }
    }

    fn unknown(&mut self, key: &str, range: Range) {
        use strum::IntoEnumIterator;
        let known: Vec<String> = Setting::iter().map(|it| it.to_string()).collect();
        let message = format!("{} is no setting", quote(key));
        let fault = Diagnostic::new(Code::UnknownField, range.in_file(self.file), message);
        let help = match did_you_mean(key, known.iter().map(String::as_str)) {
            Some(name) => format!("did you mean `{name}`?"),
            None => format!("the settings are {}", known.join(", ")),
        };
        self.faults.push(fault.with_help(help));
    }

    fn fault(&mut self, code: Code, range: Range, message: String) {
        let span = range.in_file(self.file);
        self.faults.push(Diagnostic::new(code, span, message));
    }
}
