//! The `sarif` output: SARIF 2.1.0, which code hosts and editors take in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::Report;
use crate::diagnostic::{Code, Diagnostic, Severity, Span};

/// Where the format is defined.
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// Findings as one SARIF log that ends in a newline. Rules are the codes that occur; what comments
/// let pass is there as suppressed.
pub fn sarif(report: &Report<'_>) -> String {
    let passed = report.allowed.iter().map(|it| &it.diagnostic);
    let codes: BTreeSet<Code> = report
        .diagnostics
        .iter()
        .chain(passed)
        .map(|it| it.code)
        .collect();
    let codes: Vec<Code> = codes.into_iter().collect();
    let mut fingerprints = Fingerprints::default();
    let mut results = Vec::new();
    // Either every result says whether it is suppressed, or none.
    for diagnostic in report.diagnostics {
        results.push(result(diagnostic, &codes, &mut fingerprints, &json!([])));
    }
    for allowed in report.allowed {
        let suppression = json!([{ "kind": "inSource", "justification": allowed.reason }]);
        let diagnostic = &allowed.diagnostic;
        results.push(result(diagnostic, &codes, &mut fingerprints, &suppression));
    }
    let log = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": {
                "driver": {
                    "name": "homeostat",
                    "semanticVersion": env!("CARGO_PKG_VERSION"),
                    "rules": codes.iter().copied().map(rule).collect::<Vec<Value>>(),
                },
            },
            "columnKind": "unicodeCodePoints",
            "results": results,
        }],
    });
    let mut text = serde_json::to_string_pretty(&log).expect("JSON is printable");
    text.push('\n');
    text
}

fn level(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

fn rule(code: Code) -> Value {
    let page = code.page();
    let (cause, wrong, right) = (page.cause, page.wrong, page.right);
    let text = format!("{cause}\n\nWrong:\n\n{wrong}\nRight:\n\n{right}");
    let markdown =
        format!("{cause}\n\nWrong:\n\n```yaml\n{wrong}```\n\nRight:\n\n```yaml\n{right}```\n");
    json!({
        "id": code.id(),
        "name": code.slug(),
        "shortDescription": { "text": code.title() },
        "fullDescription": { "text": cause },
        "help": { "text": text, "markdown": markdown },
        "defaultConfiguration": { "level": level(code.severity()) },
    })
}

fn result(
    diagnostic: &Diagnostic,
    codes: &[Code],
    fingerprints: &mut Fingerprints,
    suppressions: &Value,
) -> Value {
    let mut message = diagnostic.message.clone();
    if let Some(help) = &diagnostic.help {
        message = format!("{message}\n{help}");
    }
    let mut location = json!({ "physicalLocation": physical(&diagnostic.span) });
    if let Some(object) = &diagnostic.object {
        let workspace = object.workspace.iter().map(String::as_str);
        let parts = std::iter::once(object.kind.as_str()).chain(workspace);
        let parts: Vec<&str> = parts.chain([object.name.as_str()]).collect();
        let name = format!("{}{}", parts.join("/"), diagnostic.path);
        location["logicalLocations"] = json!([{ "fullyQualifiedName": name }]);
    }
    let related: Vec<Value> = diagnostic
        .labels
        .iter()
        .map(|label| {
            json!({
                "physicalLocation": physical(&label.span),
                "message": { "text": label.message },
            })
        })
        .collect();
    json!({
        "ruleId": diagnostic.code.id(),
        "ruleIndex": codes.iter().position(|code| *code == diagnostic.code),
        "level": level(diagnostic.severity()),
        "message": { "text": message },
        "locations": [location],
        "relatedLocations": related,
        "partialFingerprints": { "homeostat/v1": fingerprints.of(diagnostic) },
        "suppressions": suppressions,
    })
}

fn physical(span: &Span) -> Value {
    let (start, end) = (span.range.start, span.range.end);
    json!({
        "artifactLocation": { "uri": uri(&span.file) },
        "region": {
            "startLine": start.line,
            "startColumn": start.column,
            "endLine": end.line,
            "endColumn": end.column,
            "byteOffset": start.offset,
            "byteLength": end.offset.saturating_sub(start.offset),
        },
    })
}

/// The path as a relative reference: what may not stand in one, and a colon, which would end a
/// scheme, in percent.
fn uri(path: &str) -> String {
    let mut uri = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/!$&'()*+,;=@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            let _infallible = write!(uri, "%{byte:02X}").is_ok();
        }
    }
    uri
}

/// What a finding is known by in a later revision: everything but its line.
#[derive(Default)]
struct Fingerprints {
    seen: BTreeMap<String, usize>,
}

impl Fingerprints {
    fn of(&mut self, diagnostic: &Diagnostic) -> String {
        let object = diagnostic.object.as_ref().map(|it| &it.name);
        let parts = [
            diagnostic.code.id(),
            &diagnostic.span.file,
            object.map_or("", String::as_str),
            &diagnostic.path,
            &diagnostic.message,
        ];
        let mut digest = Sha256::new();
        for part in parts {
            digest.update(part.as_bytes());
            digest.update([0]);
        }
        let mut text = String::new();
        for byte in digest.finalize().iter().take(16) {
            let _infallible = write!(text, "{byte:02x}").is_ok();
        }
        let count = self.seen.entry(text.clone()).or_default();
        *count += 1;
        format!("{text}:{count}")
    }
}
