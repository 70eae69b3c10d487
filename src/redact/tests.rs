//! Every secret here is made up, and put together from pieces.

use proptest::prelude::*;
use serde_json::json;

use super::{EventStream, HOLD_MAX, Known, Redactor, Stream, forms};
use crate::model::event::AgentEvent;

fn broker() -> String {
    ["x9Q-zz_", "71mVp/e", "+Rr0token", "value"].concat()
}

fn stateless() -> String {
    let segment = |piece: &str| piece.repeat(12);
    let segments = [segment("aB3"), segment("cD4"), segment("eF5")];
    ["ghs", "_1234567_", &segments.join(".")].concat()
}

fn redactor() -> Redactor {
    let (broker, app) = (broker(), stateless());
    Redactor::new(&[
        Known {
            name: "broker",
            value: &broker,
        },
        Known {
            name: "app",
            value: &app,
        },
    ])
}

fn streamed(redactor: &Redactor, pieces: &[&str]) -> String {
    let mut stream = Stream::default();
    let mut out: String = pieces
        .iter()
        .map(|piece| stream.feed(redactor, piece))
        .collect();
    out.push_str(&stream.finish(redactor));
    out
}

fn base64(text: &str, is_url_safe: bool) -> String {
    let alphabet: Vec<char> = ('A'..='Z').chain('a'..='z').chain('0'..='9').collect();
    let character = |index: u32| match index {
        62 => {
            if is_url_safe {
                '-'
            } else {
                '+'
            }
        }
        63 => {
            if is_url_safe {
                '_'
            } else {
                '/'
            }
        }
        _ => alphabet[index as usize],
    };
    let mut out = String::new();
    for group in text.as_bytes().chunks(3) {
        let byte = |at: usize| u32::from(group.get(at).copied().unwrap_or(0));
        let word = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_pad = digit > group.len();
            out.push(if is_pad {
                '='
            } else {
                character(word >> (18 - 6 * digit) & 63)
            });
        }
    }
    out
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

/// As a URL encoder that spares only letters and digits writes it.
fn percent(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}

fn reversed(text: &str) -> String {
    text.chars().rev().collect()
}

/// Twenty-one ways out; each is tried whole, byte by byte and in three pieces: 63 vectors.
fn leaks() -> Vec<String> {
    let b = broker();
    let pem = |mark: &str| ["-----", mark, " OPENSSH PRIVATE ", "KEY-----"].concat();
    vec![
        b.clone(),
        format!("pre{b}post"),
        base64(&b, false),
        base64(&format!("user:{b}"), false),
        base64(&format!("ab{b}tail"), false),
        base64(&format!("k={b}"), true),
        hex(&b),
        hex(&b).to_uppercase(),
        percent(&b),
        reversed(&b),
        json!({ "t": b }).to_string(),
        format!("https://x:{b}@github.com/a/b"),
        ["Authorization: Bea", "rer ", &"Zz0".repeat(8)].concat(),
        ["gh", "p_", &"a1".repeat(18)].concat(),
        ["github", "_pat_", &"A1_".repeat(22)].concat(),
        ["sk", "-ant-api03-", &"x".repeat(40)].concat(),
        ["AK", "IA", &"A1".repeat(8)].concat(),
        ["xo", "xb-123456789012-abc"].concat(),
        [&pem("BEGIN"), "\nabc\n", &pem("END")].concat(),
        stateless(),
        [
            "ey",
            "J",
            &"a".repeat(20),
            ".",
            &"b".repeat(20),
            ".",
            &"c".repeat(20),
        ]
        .concat(),
    ]
}

const INNOCENT: &[&str] = &[
    "ghp_short",
    "commit 9fceb02d0ae598e95dc970b74767f19372d61af8",
    "sk-learn",
    "uuid 11111111-2222-3333-4444-555555555555",
    "sha256:0000000000000000000000000000000000000000000000000000000000000000",
    "https://github.com/a/b",
    "git@github.com:a/b.git",
    "Authorization header missing",
    "xoxo-hello",
    "AKIAshort",
];

/// Whether a form of the broker's value, or the whole leak, is in `out`.
fn tells(out: &str, leak: &str) -> bool {
    let has = |form: &[u8]| out.as_bytes().windows(form.len()).any(|seen| seen == form);
    forms::of(&broker()).iter().any(|form| has(form))
        || out.contains(&percent(&broker()))
        || (leak.len() > 12 && out.contains(leak))
}

#[test]
fn no_leak_gets_through_however_it_is_cut() {
    let redactor = redactor();
    let mut vectors = 0;
    for leak in leaks() {
        let line = format!("{leak}\n");
        let bytes: Vec<&str> = line.split_inclusive(|_: char| true).collect();
        let three = [&line[..7], &line[7..13], &line[13..]];
        for pieces in [&[line.as_str()][..], &bytes, &three] {
            let out = streamed(&redactor, pieces);
            assert!(!tells(&out, &leak), "{leak} in {out}");
            assert!(out.contains("[redacted:"), "{leak} in {out}");
            assert_eq!(out, redactor.text(&line), "{leak}");
            vectors += 1;
        }
    }
    assert_eq!(vectors, 63);
}

#[test]
fn what_only_resembles_a_secret_stays() {
    let redactor = redactor();
    let more = [
        "https://host:8080/path and http://[::1]:80/",
        "task-some-very-long-name-of-a-branch-that-goes-on-and-on",
        "Authorization: bearer authentication is required",
        "let key = \"-----BEGIN CERTIFICATE-----\";",
        "session_token = compute(the, session, token)",
        "100% of \\n escapes \\u00zz and %zz",
    ];
    for text in INNOCENT.iter().chain(&more) {
        assert_eq!(redactor.text(text), *text);
        let bytes: Vec<&str> = text.split_inclusive(|_: char| true).collect();
        assert_eq!(streamed(&redactor, &bytes), *text);
    }
    assert_eq!(INNOCENT.len(), 10);
}

#[test]
fn each_kind_is_found_and_its_surroundings_stay() {
    let redactor = Redactor::new(&[]);
    let key = "Ab3".repeat(20);
    let cases = [
        (format!("x sk{}{key}.", "-proj-"), "x [redacted:openai]."),
        (format!("k=AI{}{}", "za", &key[..35]), "k=[redacted:google]"),
        (format!("gl{}-{key};", "pat"), "[redacted:gitlab];"),
        (format!("np{}_{key}", "m"), "[redacted:npm]"),
        (
            format!("AWS_SECRET_ACCESS{}=\"{}\"", "_KEY", &key[..40]),
            "AWS_SECRET_ACCESS_KEY=\"[redacted:aws]\"",
        ),
        (
            format!("https://me:{}@host/x", "pw"),
            "https://[redacted:userinfo]@host/x",
        ),
        (
            format!("{{\"Authorization\": \"Basic {key}\"}}"),
            "{\"Authorization\": \"Basic [redacted:header]\"}",
        ),
        (
            format!("X-Api-Key: {key}\n"),
            "X-Api-Key: [redacted:header]\n",
        ),
        (format!(r"a\nsk-{key}\n"), r"a\n[redacted:openai]\n"),
        (
            format!("u=https%3A%2F%2Fa%3A{}%40h", "pw"),
            "u=https%3A%2F%2F[redacted:userinfo]%40h",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(redactor.text(&text), expected);
    }
}

#[test]
fn a_private_key_without_an_end_goes_as_far_as_it_looks_like_one() {
    let redactor = Redactor::new(&[]);
    let begin = ["-----BEGIN ", "PRIVATE ", "KEY-----"].concat();
    let body = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC\n".repeat(3);
    assert_eq!(redactor.text(&format!("{begin}\n{body}")), "[redacted:pem]");
    assert_eq!(
        redactor.text(&format!("find(\"{begin}\").unwrap();")),
        "find(\"[redacted:pem]\").unwrap();"
    );
    let escaped = format!("{begin}\n{body}").replace('\n', "\\n");
    assert_eq!(
        redactor.text(&format!("\"{escaped}\"")),
        "\"[redacted:pem]\""
    );
}

#[test]
fn overlapping_values_go_together() {
    let known = ["abcdefghIJ", "ghIJklmnop"].map(|value| Known { name: value, value });
    let redactor = Redactor::new(&known);
    assert_eq!(
        redactor.text("<abcdefghIJklmnop>"),
        "<[redacted:abcdefghIJ]>"
    );
    assert_eq!(
        redactor.text("ghIJklmnopabcdefghIJ"),
        "[redacted:ghIJklmnop][redacted:abcdefghIJ]"
    );
}

/// Undone escapes join the first header's value to the second header's name.
#[test]
fn a_stream_is_not_cut_between_a_prefix_and_its_secret() {
    let redactor = Redactor::new(&[]);
    let header = ["Authorization: Bea", "rer ", &"Zz0".repeat(8)].concat();
    let text = format!("{header}%2Bx{header}");
    for at in 0..text.len() {
        let out = streamed(&redactor, &[&text[..at], &text[at..]]);
        assert_eq!(out, redactor.text(&text), "{at}");
        assert!(!out.contains("Zz0"), "{out}");
    }
}

#[test]
fn an_untouched_text_is_not_copied() {
    assert!(matches!(
        redactor().text("nothing here"),
        std::borrow::Cow::Borrowed(_)
    ));
}

#[test]
fn what_is_held_is_bounded_and_ordinary_text_is_not_held() {
    let redactor = redactor();
    let mut stream = Stream::default();
    assert_eq!(stream.feed(&redactor, "hello, wor"), "hello, wor");
    let endless = ["ey", "J", &"a".repeat(HOLD_MAX * 3)].concat();
    for piece in [endless.as_str(), "a"] {
        let _said = stream.feed(&redactor, piece);
        assert!(stream.held() <= HOLD_MAX, "{}", stream.held());
    }
}

#[test]
fn nothing_prints_a_value() {
    let broker = broker();
    let known = Known {
        name: "broker",
        value: &broker,
    };
    let mut stream = Stream::default();
    let _said = stream.feed(&redactor(), &broker[..20]);
    for shown in [
        format!("{known:?}"),
        format!("{:?}", redactor()),
        format!("{stream:?}"),
    ] {
        assert!(!shown.contains(&broker[..8]), "{shown}");
    }
}

#[test]
fn every_string_of_an_event_is_redacted() {
    let (redactor, b) = (redactor(), broker());
    let args = json!({ "k": [&b, 1, null], b.clone(): true, hex(&b): false });
    let text = || b.clone();
    let events = [
        AgentEvent::Thinking { text: text() },
        AgentEvent::Text { text: text() },
        AgentEvent::ToolCall {
            id: text(),
            name: text(),
            args,
        },
        AgentEvent::ToolResult {
            id: text(),
            output: text(),
            is_error: true,
            is_partial: false,
        },
        AgentEvent::Usage {
            model: Some(text()),
            usage: Default::default(),
        },
        AgentEvent::Error {
            message: text(),
            code: Some(text()),
        },
        AgentEvent::SandboxViolation {
            operation: text(),
            source: text(),
        },
        AgentEvent::Debug { message: text() },
        AgentEvent::Done {},
    ];
    for event in events {
        let clean = redactor.redact_event(&event);
        assert_eq!(clean.type_name(), event.type_name());
        let shown = serde_json::to_string(&clean).unwrap();
        assert!(!tells(&shown, &b), "{shown}");
    }
    let AgentEvent::ToolCall { args, .. } = redactor.redact_event(&AgentEvent::ToolCall {
        id: String::new(),
        name: String::new(),
        args: json!({ b.clone(): true, hex(&b): false }),
    }) else {
        panic!("a call stays a call");
    };
    assert_eq!(
        args,
        json!({ "[redacted:broker]": true, "[redacted:broker]#2": false })
    );
}

#[test]
fn a_value_spread_over_events_is_found() {
    let (redactor, b) = (redactor(), broker());
    let text = |text: &str| AgentEvent::Text {
        text: text.to_owned(),
    };
    let debug = AgentEvent::Debug {
        message: "note".to_owned(),
    };
    let result = |output: &str, is_partial: bool| AgentEvent::ToolResult {
        id: "1".to_owned(),
        output: output.to_owned(),
        is_error: !is_partial,
        is_partial,
    };
    let mut stream = EventStream::default();
    let events = [
        text(&format!("a {}", &b[..9])),
        debug.clone(),
        text(&b[9..]),
        result(&b[..4], true),
        result(&b[4..], false),
        text(&b[..9]),
        AgentEvent::Done {},
    ];
    let out: Vec<_> = events
        .iter()
        .flat_map(|event| stream.feed(&redactor, event))
        .collect();
    let expected = [
        text("a "),
        debug,
        text("[redacted:broker]"),
        result("[redacted:broker]", false),
        text(&b[..9]),
        AgentEvent::Done {},
    ];
    assert_eq!(out, expected);
    assert_eq!(stream.flush(&redactor), None);
}

/// Texts in which values, their forms, escapes and ordinary words stand side by side.
fn soup(value: &str) -> impl Strategy<Value = String> + use<> {
    let json = json!(value).to_string();
    let all_escaped: String = value
        .chars()
        .map(|c| format!("\\u{:04x}", u32::from(c)))
        .collect();
    let forms = vec![
        value.to_owned(),
        base64(value, false),
        base64(&format!("a{value}b"), true),
        base64(&format!("ab{value}"), false),
        hex(value),
        hex(value).to_uppercase(),
        percent(value),
        value.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        reversed(value),
        json[1..json.len() - 1].to_owned(),
        json!(json).to_string(),
        all_escaped,
        value.chars().take(value.chars().count() / 2).collect(),
    ];
    let shapes = leaks();
    let piece = prop_oneof![
        3 => proptest::sample::select(forms),
        1 => proptest::sample::select(shapes),
        2 => "[ -~]{0,6}",
        1 => r#"[\\%u/:"@é=-]{0,4}"#,
    ];
    proptest::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z0-9+/=_-]{8,40}",
        "[ -~]{8,20}",
        r#"[ab"\\/é]{8,12}"#
    ]
}

/// `text` cut at the given places.
fn cut<'a>(text: &'a str, places: &[proptest::sample::Index]) -> Vec<&'a str> {
    let place =
        |index: &proptest::sample::Index| text.floor_char_boundary(index.index(text.len() + 1));
    let mut places: Vec<usize> = places.iter().map(place).collect();
    places.sort_unstable();
    places.push(text.len());
    let mut start = 0;
    let piece = |end: usize| &text[std::mem::replace(&mut start, end)..end];
    places.into_iter().map(piece).collect()
}

#[test]
fn a_stray_percent_sign_hides_no_beginning() {
    for value in ["0di7:$&'\"pr'", "ab.c-d_e~f"] {
        let redactor = Redactor::new(&[Known { name: "v", value }]);
        let text = format!("%{}", percent(value));
        assert_eq!(redactor.text(&text), "%[redacted:v]");
        assert_eq!(redactor.text(&text.to_lowercase()), "%[redacted:v]");
    }
}

proptest! {
    #[test]
    fn a_stream_says_what_the_whole_text_says(
        (value, text) in value().prop_flat_map(|value| (Just(value.clone()), soup(&value))),
        places in proptest::collection::vec(any::<proptest::sample::Index>(), 0..40),
    ) {
        let redactor = Redactor::new(&[Known { name: "v", value: &value }]);
        prop_assert_eq!(streamed(&redactor, &cut(&text, &places)), redactor.text(&text));
    }

    #[test]
    fn no_form_survives(
        (value, text) in value().prop_flat_map(|value| (Just(value.clone()), soup(&value))),
    ) {
        let redactor = Redactor::new(&[Known { name: "v", value: &value }]);
        let out = redactor.text(&text);
        for form in forms::of(&value) {
            let form = String::from_utf8(form).unwrap();
            prop_assert!(!out.contains(&form), "{} in {}", form, out);
        }
        for form in [percent(&value), json!(value).to_string()] {
            prop_assert!(!out.contains(&form), "{} in {}", form, out);
        }
    }

    #[test]
    fn any_text_is_judged(text in any::<String>(), value in any::<String>()) {
        let redactor = Redactor::new(&[Known { name: "v", value: &value }]);
        let out = streamed(&redactor, &[&text]);
        prop_assert_eq!(out, redactor.text(&text));
    }
}
