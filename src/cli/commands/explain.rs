//! `explain`: a code of `validate`, a kind or one of its fields, from what the program itself
//! checks by.

use std::fmt::Write as _;

use serde::Serialize;
use strum::IntoEnumIterator;

use crate::cli::error::{CliError, CliResult, Exit, Kind};
use crate::cli::form::Form;
use crate::cli::ui::Ui;
use crate::diagnostic::{BESIDE, Code, Severity, did_you_mean};
use crate::manifest::field::{self, Field};
use crate::model::kind::Kind as ObjectKind;

/// Explain a code of `validate`, a kind, or a field of a kind
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Explain this: H0301, unknown-field, agent or agent.spec.adapter [default: list all]
    subject: Option<String>,
    /// Choose the form of the result
    #[arg(long, short, value_enum, default_value_t = Form::Text)]
    output: Form,
}

/// Columns of running text.
const WIDTH: usize = 88;

/// A code, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    code: Code,
    name: &'static str,
    severity: Severity,
    allowable: bool,
    title: &'static str,
    cause: &'static str,
    wrong: &'static str,
    right: &'static str,
    /// What both examples refer to.
    beside: &'static str,
}

/// Explains it.
pub(crate) fn run(args: &Args, ui: &mut Ui) -> CliResult {
    let Some(subject) = args.subject.as_deref() else {
        match args.output {
            Form::Json => ui.json(&Code::iter().map(explained).collect::<Vec<Explained>>())?,
            Form::Text => ui.result(&overview())?,
        }
        return Ok(Exit::Fine);
    };
    if let Some(code) = Code::named(subject) {
        match args.output {
            Form::Json => ui.json(&explained(code))?,
            Form::Text => ui.result(&text_of_code(code))?,
        }
        return Ok(Exit::Fine);
    }
    let field = field_of(subject)?;
    match args.output {
        Form::Json => ui.json(&field)?,
        Form::Text => ui.result(&text_of_field(&field))?,
    }
    Ok(Exit::Fine)
}

fn explained(code: Code) -> Explained {
    let page = code.page();
    Explained {
        code,
        name: code.slug(),
        severity: code.severity(),
        allowable: code.is_allowable(),
        title: code.title(),
        cause: page.cause,
        wrong: page.wrong,
        right: page.right,
        beside: BESIDE,
    }
}

/// The field or kind that `subject` names.
fn field_of(subject: &str) -> CliResult<Field> {
    let mut names = subject.split('.');
    let first = names.next().unwrap_or_default();
    let path: Vec<&str> = names.collect();
    let kind = ObjectKind::from_argument(first).ok_or_else(|| unknown(first))?;
    field::field(kind, &path).map_err(|error| {
        let near = did_you_mean(&error.name, error.fields.iter().map(String::as_str));
        let inside_spec: Vec<&str> = std::iter::once("spec").chain(path.clone()).collect();
        let hint = match near {
            Some(near) => format!("did you mean `{}.{near}`?", error.within),
            None if field::field(kind, &inside_spec).is_ok() => {
                format!("did you mean `{kind}.{}`?", inside_spec.join("."))
            }
            None if error.fields.is_empty() => "it holds no fields".to_owned(),
            None => format!("its fields are {}", error.fields.join(", ")),
        };
        CliError::of(Kind::Usage, &error).hint(hint)
    })
}

/// Neither a code nor a kind.
fn unknown(text: &str) -> CliError {
    let error = CliError::new(Kind::Usage, format!("'{text}' is no code and no kind"));
    let kinds = ObjectKind::iter().map(|kind| kind.to_string());
    let codes = Code::iter().flat_map(|code| [code.id(), code.slug()].map(str::to_owned));
    let known: Vec<String> = kinds.chain(codes).collect();
    match did_you_mean(text, known.iter().map(String::as_str)) {
        Some(near) => error.hint(format!("did you mean `{near}`?")),
        None => error.hint("`homeostat explain` lists what there is"),
    }
}

fn overview() -> String {
    let mut text = "kinds:\n".to_owned();
    for kind in ObjectKind::iter() {
        let described = field::field(kind, &[]).map(|it| it.description);
        put(
            &mut text,
            format_args!("  {kind:<13}{}", described.unwrap_or_default()),
        );
    }
    text.push_str("\ncodes:\n");
    for code in Code::iter() {
        put(
            &mut text,
            format_args!("  {} {:<22}{}", code.id(), code.slug(), code.title()),
        );
    }
    text
}

fn text_of_code(code: Code) -> String {
    let page = code.page();
    let mut text = String::new();
    put(
        &mut text,
        format_args!("{} {} ({})", code.id(), code.slug(), code.severity()),
    );
    put(&mut text, code.title());
    text.push('\n');
    put(&mut text, wrapped(page.cause, ""));
    if code.is_allowable() {
        text.push_str(
            "\nA comment behind it, or on the line above, lets it pass; it gives a reason:\n\n",
        );
        put(
            &mut text,
            format_args!("    # homeostat: allow({}) reason", code.id()),
        );
    }
    for (title, example) in [("wrong", page.wrong), ("right", page.right)] {
        put(&mut text, format_args!("\n{title}:\n"));
        for line in example.lines() {
            put(&mut text, format_args!("    {line}"));
        }
    }
    text
}

fn text_of_field(field: &Field) -> String {
    let mut text = String::new();
    put(&mut text, &field.path);
    put(&mut text, wrapped(&field.description, ""));
    text.push('\n');
    put(&mut text, format_args!("type      {}", field.type_name));
    let required = if field.is_required { "yes" } else { "no" };
    put(&mut text, format_args!("required  {required}"));
    if let Some(default) = &field.default {
        put(&mut text, format_args!("default   {default}"));
    }
    for limit in &field.limits {
        put(&mut text, format_args!("limits    {limit}"));
    }
    section(
        &mut text,
        "choices",
        field
            .choices
            .iter()
            .map(|choice| (choice.value.clone(), choice.description.clone())),
    );
    let lines = field.fields.iter().map(|inner| {
        let required = if inner.is_required { ", required" } else { "" };
        let said = format!("{} ({}{required})", inner.description, inner.type_name);
        (inner.path.clone(), said)
    });
    section(&mut text, "fields", lines);
    text
}

fn section(text: &mut String, title: &str, lines: impl Iterator<Item = (String, String)>) {
    let lines: Vec<(String, String)> = lines.collect();
    let width = lines.iter().map(|(name, _)| name.len()).max();
    let Some(width) = width else { return };
    put(text, format_args!("\n{title}:"));
    for (name, said) in lines {
        let indent = " ".repeat(width + 4);
        let said = wrapped(&said, &indent);
        put(text, format!("  {name:<width$}  {said}").trim_end());
    }
}

/// The text on lines of bounded width, those behind the first indented.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let line = lines.last_mut().expect("there is a line from the start");
        let is_first = line.is_empty();
        if !is_first && indent.len() + line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(word.to_owned());
            continue;
        }
        if !is_first {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.join(&format!("\n{indent}"))
}

fn put(text: &mut String, line: impl std::fmt::Display) {
    let _infallible = writeln!(text, "{line}").is_ok();
}
