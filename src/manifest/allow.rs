//! Comments that let a warning pass: `# homeostat: allow(H0114) reason`. One behind something is
//! about its own line; one on a line of its own is about the next line that is not another.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::ManifestFile;
use crate::diagnostic::{Allowed, Code, Diagnostic, Span, did_you_mean, quote};
use crate::yaml;

/// Begins every comment to homeostat.
const PREFIX: &str = "homeostat:";

/// A comment that was understood.
struct Allow {
    reason: String,
    span: Span,
    is_used: bool,
}

/// What a comment is about: the file, the line and the code.
type Subject = (String, u32, Code);

/// Moves what comments allow out of `diagnostics`, and adds what is wrong with the comments.
pub(super) fn apply(files: &[&ManifestFile], diagnostics: &mut Vec<Diagnostic>) -> Vec<Allowed> {
    let mut allows = BTreeMap::new();
    let mut faults = Vec::new();
    for file in files.iter().filter(|file| may_speak(&file.bytes)) {
        read(file, &mut allows, &mut faults);
    }
    let mut allowed = Vec::new();
    for diagnostic in std::mem::take(diagnostics) {
        let place = &diagnostic.span;
        let subject = (place.file.clone(), place.range.start.line, diagnostic.code);
        match allows.get_mut(&subject) {
            Some(allow) => {
                allow.is_used = true;
                allowed.push(Allowed {
                    diagnostic,
                    reason: allow.reason.clone(),
                });
            }
            None => diagnostics.push(diagnostic),
        }
    }
    let unused = allows.into_iter().filter(|(_, allow)| !allow.is_used);
    faults.extend(unused.map(|((_, line, code), allow)| unused_at(allow.span, line, code)));
    diagnostics.extend(faults);
    allowed
}

fn unused_at(span: Span, line: u32, code: Code) -> Diagnostic {
    let message = format!("nothing else on line {line} is {}", code.id());
    Diagnostic::new(Code::UnusedAllow, span, message).with_help("remove the comment")
}

/// Whether it is worth reading a file again for its comments.
fn may_speak(bytes: &[u8]) -> bool {
    bytes
        .windows(PREFIX.len())
        .any(|window| window == PREFIX.as_bytes())
}

fn read(file: &ManifestFile, allows: &mut BTreeMap<Subject, Allow>, faults: &mut Vec<Diagnostic>) {
    let mut comments = yaml::comments(&file.bytes);
    comments.retain(|comment| comment.text.trim_start().starts_with(PREFIX));
    // The line that one is about; from the last to the first, since what stands above others is
    // about what they are about.
    let mut lines: Vec<u32> = Vec::with_capacity(comments.len());
    let mut below: Option<(u32, u32)> = None;
    for comment in comments.iter().rev() {
        let own = comment.range.start.line;
        let line = match below {
            _ if !comment.is_alone => own,
            Some((next, line)) if next == own + 1 => line,
            _ => own + 1,
        };
        if comment.is_alone {
            below = Some((own, line));
        }
        lines.push(line);
    }
    for (comment, line) in comments.iter().zip(lines.into_iter().rev()) {
        let span = comment.range.in_file(&file.path);
        match understand(&comment.text) {
            Err((message, help)) => {
                faults.push(Diagnostic::new(Code::BadAllow, span, message).with_help(help));
            }
            Ok((code, reason)) => match allows.entry((file.path.clone(), line, code)) {
                Entry::Occupied(_) => faults.push(unused_at(span, line, code)),
                Entry::Vacant(free) => {
                    free.insert(Allow {
                        reason,
                        span,
                        is_used: false,
                    });
                }
            },
        }
    }
}

/// The code and the reason, or what is wrong and what to do.
fn understand(comment: &str) -> Result<(Code, String), (String, String)> {
    let form = || "write `# homeostat: allow(CODE) reason`".to_owned();
    let said = comment.trim_start();
    let said = said.strip_prefix(PREFIX).unwrap_or(said).trim();
    let inner = said.strip_prefix("allow(");
    let Some((code, reason)) = inner.and_then(|inner| inner.split_once(')')) else {
        let message = format!("the comment {} is not understood", quote(said));
        return Err((message, form()));
    };
    let code = code.trim();
    let Some(known) = Code::named(code).filter(|known| known.id() == code) else {
        let message = format!("there is no code {}", quote(code));
        let help = Code::named(code).map(Code::id).or_else(|| near(code));
        let help = help.map_or_else(
            || "`homeostat explain` lists the codes".to_owned(),
            |id| format!("did you mean `{id}`?"),
        );
        return Err((message, help));
    };
    if !known.is_allowable() {
        let message = format!("{} cannot be allowed", known.id());
        let help = "remove the comment; only warnings can be let pass".to_owned();
        return Err((message, help));
    }
    let reason = reason.trim();
    if reason.is_empty() {
        return Err((
            format!("{} is allowed without a reason", known.id()),
            form(),
        ));
    }
    Ok((known, reason.to_owned()))
}

fn near(code: &str) -> Option<&'static str> {
    use strum::IntoEnumIterator;
    let near = did_you_mean(code, Code::iter().map(Code::id));
    let near = near.or_else(|| did_you_mean(code, Code::iter().map(Code::slug)));
    near.and_then(Code::named).map(Code::id)
}
