//! A secret from standard input. At a terminal it is not shown, and nothing of it is left there.

use std::io::{self, IsTerminal, Stdin};

use rustix::io::{Errno, read};
use rustix::termios::{
    InputModes, LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr,
};
use zeroize::Zeroizing;

use super::error::{CliError, CliResult, Kind, OrFail};
use super::ui::Ui;
use crate::credential::{SECRET_BYTES_MAX, Secret};

/// What is read at most: one byte more than is taken, and a line's end.
const INPUT_BYTES_MAX: usize = SECRET_BYTES_MAX + 3;

/// Reads standard input to its end, or one line of a terminal.
///
/// # Errors
/// When it can't be read, or what it gives is no secret.
pub(crate) fn of_stdin(prompt: &str, ui: &mut Ui) -> CliResult<Secret> {
    let stdin = io::stdin();
    let unreadable = "failed to read the secret from standard input";
    let input = if stdin.is_terminal() {
        // Whoever reads that it is not shown may type at once.
        let quiet = Quiet::new(&stdin).or_fail(Kind::Usage, unreadable)?;
        ui.say(prompt);
        let input = typed(&stdin).or_fail(Kind::Usage, unreadable)?;
        drop(quiet);
        input
    } else {
        piped(&stdin).or_fail(Kind::Usage, unreadable)?
    };
    taken(&input, "what standard input gives")
}

/// The secret in `input`, which came from `place`.
///
/// # Errors
/// When it is none.
pub(crate) fn taken(input: &[u8], place: &str) -> CliResult<Secret> {
    Secret::of_input(input).map_err(|error| {
        CliError::caused(Kind::Usage, format!("{place} is no key or token"), &error)
            .hint("nothing was stored")
    })
}

fn piped(stdin: &Stdin) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut input = Zeroizing::new(vec![0; INPUT_BYTES_MAX]);
    let mut length = 0;
    while length < INPUT_BYTES_MAX {
        match read(stdin, &mut input[length..]) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    input.truncate(length);
    Ok(input)
}

/// One line of a quiet terminal, byte by byte: a terminal that edits lines itself would pass on only so much of one,
/// and a signal in the middle would leave it mute.
fn typed(stdin: &Stdin) -> io::Result<Zeroizing<Vec<u8>>> {
    let mut input = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX));
    let mut byte = [0];
    while input.len() < INPUT_BYTES_MAX {
        match read(stdin, &mut byte) {
            Ok(0) => break,
            Ok(_) => {}
            Err(Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        }
        match byte[0] {
            b'\r' | b'\n' | END_OF_INPUT => break,
            INTERRUPT => return Err(io::ErrorKind::Interrupted.into()),
            BACKSPACE | DELETE => drop(input.pop()),
            ERASE_LINE => input.clear(),
            typed => input.push(typed),
        }
    }
    Ok(input)
}

const INTERRUPT: u8 = 0x03;
const END_OF_INPUT: u8 = 0x04;
const BACKSPACE: u8 = 0x08;
const ERASE_LINE: u8 = 0x15;
const DELETE: u8 = 0x7F;

/// A terminal that shows nothing and passes on every byte, until this is dropped.
struct Quiet<'a> {
    stdin: &'a Stdin,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn new(stdin: &'a Stdin) -> io::Result<Self> {
        let before = tcgetattr(stdin)?;
        let mut quiet = before.clone();
        let shown = LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG | LocalModes::IEXTEN;
        quiet.local_modes.remove(shown);
        quiet.input_modes.remove(InputModes::IXON);
        quiet.special_codes[SpecialCodeIndex::VMIN] = 1;
        quiet.special_codes[SpecialCodeIndex::VTIME] = 0;
        // What was typed before it was asked for was shown: it goes.
        tcsetattr(stdin, OptionalActions::Flush, &quiet)?;
        Ok(Self { stdin, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        // A terminal that is gone shows nothing either.
        tcsetattr(self.stdin, OptionalActions::Flush, &self.before).ok();
    }
}
