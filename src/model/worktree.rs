//! Words that worktrees and runs share.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize};

/// The uid and gid that own worktrees on disk and that agents run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UserIds {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
}

/// A SHA-1 object id of a commit or tree, in 40 lower-case hex digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ObjectId(String);

/// A text that is not an object id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an object id of 40 hex digits")]
pub struct ObjectIdError {
    text: String,
}

impl ObjectId {
    /// The digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The form that tables show.
    pub fn short(&self) -> &str {
        self.0.get(..10).unwrap_or(&self.0)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(text: &str) -> Result<Self, ObjectIdError> {
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 40 && text.bytes().all(digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ObjectIdError {
                text: text.chars().take(80).collect(),
            })
        }
    }
}

impl<'de> Deserialize<'de> for ObjectId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_ids_are_forty_lower_case_hex_digits() {
        let right = "0123456789abcdef0123456789abcdef01234567";
        assert_eq!(
            right.parse::<ObjectId>().map(|id| id.to_string()),
            Ok(right.to_owned())
        );
        for wrong in [
            "",
            "abc",
            &right[1..],
            &right.to_uppercase(),
            "--upload-pack=x",
        ] {
            assert!(wrong.parse::<ObjectId>().is_err(), "{wrong}");
        }
    }
}
