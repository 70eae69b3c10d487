//! Who an agent is to the kernel. Never root.

use thiserror::Error;

/// The user and group of runs when the daemon is root and nothing else is configured.
///
/// It lies outside of every range that others hand out: system accounts (below 1000), people (to
/// 60000), systemd's dynamic, home and host ids (60001–65519), nobody (65534), the 16-bit "none"
/// (65535), and the containers' ranges of Debian and shadow (from 100000) and systemd (from 524288).
pub const DEFAULT_RUN_ID: u32 = 70_007;

/// The user and group that agents run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunIdentity {
    uid: u32,
    gid: u32,
}

/// Why agents can't run as what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum IdentityError {
    /// That would be root, or the number that stands for "no user".
    #[error("run agents as user {0}")]
    NotAllowed(u32),
    /// Only a root daemon can run agents as somebody else.
    #[error("run agents as user {configured}, as the daemon is user {own} and not root")]
    CannotSwitch {
        /// What is configured.
        configured: u32,
        /// What the daemon is.
        own: u32,
    },
}

impl RunIdentity {
    /// The identity of runs for a daemon of these effective ids. A root daemon's runs are the
    /// `configured` user, or [`DEFAULT_RUN_ID`], and the group of the same number; any other
    /// daemon's runs are its own user and group.
    ///
    /// # Errors
    /// When that would be root, or can't be done.
    pub const fn resolve(
        euid: u32,
        egid: u32,
        configured: Option<u32>,
    ) -> Result<Self, IdentityError> {
        let asked = match configured {
            Some(id @ (0 | u32::MAX)) => return Err(IdentityError::NotAllowed(id)),
            Some(id) => id,
            None if euid == 0 => DEFAULT_RUN_ID,
            None => euid,
        };
        if euid == 0 {
            return Ok(Self {
                uid: asked,
                gid: asked,
            });
        }
        if asked != euid {
            return Err(IdentityError::CannotSwitch {
                configured: asked,
                own: euid,
            });
        }
        Ok(Self {
            uid: euid,
            gid: egid,
        })
    }

    /// The user; never 0.
    pub const fn uid(self) -> u32 {
        self.uid
    }

    /// The group; 0 only if it is that of a daemon that is not root.
    pub const fn gid(self) -> u32 {
        self.gid
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_never_root() {
        let ok = |uid, gid| Ok(RunIdentity { uid, gid });
        let cases = [
            ((0, 0, None), ok(DEFAULT_RUN_ID, DEFAULT_RUN_ID)),
            ((0, 0, Some(1234)), ok(1234, 1234)),
            ((0, 0, Some(0)), Err(IdentityError::NotAllowed(0))),
            (
                (0, 0, Some(u32::MAX)),
                Err(IdentityError::NotAllowed(u32::MAX)),
            ),
            ((1000, 100, None), ok(1000, 100)),
            ((1000, 100, Some(1000)), ok(1000, 100)),
            (
                (1000, 100, Some(1001)),
                Err(IdentityError::CannotSwitch {
                    configured: 1001,
                    own: 1000,
                }),
            ),
            ((1000, 100, Some(0)), Err(IdentityError::NotAllowed(0))),
            // As containers do that invent a user.
            ((1000, 0, None), ok(1000, 0)),
        ];
        for ((euid, egid, configured), expected) in cases {
            let got = RunIdentity::resolve(euid, egid, configured);
            assert_eq!(got, expected, "{euid}, {egid}, {configured:?}");
        }
    }
}
