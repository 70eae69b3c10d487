//! How an object differs from what it was, field by field.

use serde::Serialize;
use serde_json::Value;

/// Characters of a value that text shows.
const VALUE_CHARS_MAX: usize = 60;

/// One field of a changed object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Field {
    /// Where it is: `spec.title`. Lists are compared whole.
    path: String,
    /// What it was; absent where it was not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<Value>,
    /// What it becomes; absent where it goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<Value>,
    /// Whether the values are kept back, because such a field may hold a secret.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_hidden: bool,
}

/// The fields of `spec` that differ, in the order of their names.
pub(super) fn fields(before: &Value, after: &Value) -> Vec<Field> {
    let mut found = Vec::new();
    compare("spec", &before["spec"], &after["spec"], &mut found);
    found
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<Field>) {
    if before == after {
        return;
    }
    if let (Value::Object(before), Value::Object(after)) = (before, after) {
        let names = before.keys().chain(after.keys());
        let names: std::collections::BTreeSet<&String> = names.collect();
        for name in names {
            let of = |object: &serde_json::Map<String, Value>| {
                object.get(name).cloned().unwrap_or(Value::Null)
            };
            compare(&format!("{path}.{name}"), &of(before), &of(after), found);
        }
        return;
    }
    let is_hidden = path.starts_with("spec.env.");
    let value = |value: &Value| (!is_hidden && !value.is_null()).then(|| value.clone());
    found.push(Field {
        path: path.to_owned(),
        from: value(before),
        to: value(after),
        is_hidden,
    });
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_hidden {
            return write!(f, "{}: changed", self.path);
        }
        let shown = |value: &Option<Value>| match value {
            None => "(not set)".to_owned(),
            Some(value) => cut(&value.to_string()),
        };
        write!(
            f,
            "{}: {} → {}",
            self.path,
            shown(&self.from),
            shown(&self.to)
        )
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_told_and_what_may_be_secret_is_not() {
        let before = json!({"spec": {
            "title": "Writer", "skills": ["a"], "budget": {"monthly": 500}, "gone": true,
            "env": {"KEY": "old", "SAME": "x"}, "long": "x".repeat(100),
        }});
        let after = json!({"spec": {
            "title": "Author", "skills": ["a", "b"], "budget": {"monthly": 700}, "model": "m",
            "env": {"KEY": "new", "SAME": "x"}, "long": "y",
        }});
        let found = fields(&before, &after);
        let lines: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "spec.budget.monthly: 500 → 700",
                "spec.env.KEY: changed",
                "spec.gone: true → (not set)",
                &format!("spec.long: \"{}… → \"y\"", "x".repeat(59)),
                "spec.model: (not set) → \"m\"",
                "spec.skills: [\"a\"] → [\"a\",\"b\"]",
                "spec.title: \"Writer\" → \"Author\"",
            ]
        );
        let told = serde_json::to_string(&found).unwrap();
        assert!(!told.contains("old") && !told.contains("new"), "{told}");
        assert_eq!(fields(&before, &before), []);
    }
}
