//! The address of a repository on another host.

use std::fmt;

/// Where a repository is fetched from. What the address says of who asks is kept apart from it, and
/// doesn't print.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteUrl {
    address: String,
    login: Option<Login>,
}

/// Who asks, as an `https` address says.
#[derive(Clone, PartialEq, Eq)]
pub struct Login {
    /// The user; on some servers this is a secret as well.
    pub user: String,
    /// The password.
    pub password: Option<String>,
}

impl RemoteUrl {
    /// Whether a text is an address, also one that is not understood, and no path.
    pub fn is_meant(text: &str) -> bool {
        let before_slash = text.split('/').next().unwrap_or_default();
        text.contains("://") || before_slash.contains(':')
    }

    /// Takes an address apart: `https`, `http`, `ssh`, `git` and `file` ones, and `host:path`,
    /// which is one of ssh. None when it is no such address.
    pub fn parse(text: &str) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
        if !Self::is_meant(text) || text.starts_with('-') || !text.chars().all(is_plain) {
            return None;
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            // As with ssh of old, there is no place for a password.
            return Some(Self::open(text.to_owned()));
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let (login, host) = match authority.rsplit_once('@') {
            Some((login, host)) => (Some(login), host),
            None => (None, authority),
        };
        let is_file = scheme == "file";
        if host.starts_with('-') || (host.is_empty() && !is_file) || path.len() < 2 {
            return None;
        }
        let bare = format!("{scheme}://{host}{path}");
        match (scheme, login) {
            ("https" | "http", Some(login)) => Some(Self {
                address: bare,
                login: Some(Login::parse(login)?),
            }),
            // The user is a part of the address; a password is one that ssh never takes.
            ("ssh", Some(user)) if !user.contains(':') && !user.starts_with('-') => {
                Some(Self::open(text.to_owned()))
            }
            ("https" | "http" | "ssh" | "git" | "file", None) => Some(Self::open(bare)),
            _ => None,
        }
    }

    const fn open(address: String) -> Self {
        Self {
            address,
            login: None,
        }
    }

    /// The address, without what is secret in it.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Scheme and host of an address that has a login.
    pub fn origin(&self) -> &str {
        let start = self.address.find("://").map_or(0, |at| at + 3);
        let end = self.address[start..].find('/');
        &self.address[..end.map_or(self.address.len(), |at| start + at)]
    }

    /// Who asks, if the address said so.
    pub const fn login(&self) -> Option<&Login> {
        self.login.as_ref()
    }
}

impl Login {
    fn parse(text: &str) -> Option<Self> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (text, None),
        };
        Some(Self {
            user: decoded(user)?,
            password: match password {
                Some(password) => Some(decoded(password)?),
                None => None,
            },
        })
    }
}

/// A text with `%XX` for bytes; none if one is a control character, which would end a line.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            u8::try_from(high * 16 + low).ok()?
        } else {
            byte
        });
    }
    let text = String::from_utf8(bytes).ok()?;
    (!text.chars().any(char::is_control)).then_some(text)
}

impl fmt::Display for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl fmt::Debug for RemoteUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Login")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_without_its_secrets() {
        for (text, address, user, password) in [
            ("https://h/r.git", "https://h/r.git", None, None),
            (
                "https://ann:p%40ss:w@h:8443/o/r",
                "https://h:8443/o/r",
                Some("ann"),
                Some("p@ss:w"),
            ),
            ("http://tok@h/r", "http://h/r", Some("tok"), None),
            ("ssh://git@h:22/r", "ssh://git@h:22/r", None, None),
            ("git@h:o/r.git", "git@h:o/r.git", None, None),
            ("git://h/r", "git://h/r", None, None),
            ("file:///srv/r", "file:///srv/r", None, None),
        ] {
            let url = RemoteUrl::parse(text).unwrap();
            assert_eq!(url.to_string(), address);
            assert_eq!(format!("{url:?}"), address);
            let login = url.login();
            assert_eq!(login.map(|it| it.user.as_str()), user, "{text}");
            let found = login.and_then(|it| it.password.as_deref());
            assert_eq!(found, password, "{text}");
        }
        let url = RemoteUrl::parse("https://a:b@h:8443/o/r").unwrap();
        assert_eq!(url.origin(), "https://h:8443");
    }

    #[test]
    fn what_git_would_read_otherwise_is_no_address() {
        for text in [
            "/srv/r",
            "./a:b",
            "ext::sh -c x",
            "ftp://h/r",
            "ssh://-oProxyCommand=x/r",
            "-oProxyCommand=x:r",
            "ssh://git:secret@h/r",
            "https://h/r?token=x",
            "https://a:b%0ahost=x@h/r",
            "https://a:%zz@h/r",
            "https://h",
            "https:///r",
        ] {
            assert_eq!(RemoteUrl::parse(text), None, "{text}");
        }
    }
}
