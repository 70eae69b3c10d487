//! A value that doesn't print.

use std::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

/// The longest secret that is taken, in bytes: about what servers take as one header.
pub const SECRET_BYTES_MAX: usize = 8 * 1024;

/// Why what was given is no secret. It doesn't quote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SecretError {
    /// There is nothing but blanks.
    #[error("it is empty")]
    Empty,
    /// No server takes that.
    #[error("it is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// No header may hold it.
    #[error("it has more than one line, a blank inside, or bytes that are no plain ASCII")]
    NotPlain,
}

/// A secret text. It has no `Display`, no serde form and no equality; its memory is wiped when it
/// is dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// Takes what a person or a program gave, without the blanks around it.
    ///
    /// # Errors
    ///
    /// If that is nothing that a header can hold.
    pub fn of_input(input: &[u8]) -> Result<Self, SecretError> {
        let input = input.trim_ascii();
        if input.is_empty() {
            return Err(SecretError::Empty);
        }
        if input.len() > SECRET_BYTES_MAX {
            return Err(SecretError::TooLong);
        }
        let text = std::str::from_utf8(input).map_err(|_not_quoted| SecretError::NotPlain)?;
        let secret = Self::new(text.to_owned());
        secret
            .is_plain()
            .then_some(secret)
            .ok_or(SecretError::NotPlain)
    }

    /// Whether a header may hold it.
    pub(super) fn is_plain(&self) -> bool {
        self.0.bytes().all(|byte| byte.is_ascii_graphic())
    }

    /// The text itself: for a header, a socket, a redactor.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}
