//! `volume`: a volume on which files can be cloned, on any Linux.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::Subcommand;
use serde::Serialize;

use crate::cli::error::{CliError, CliResult, Exit, Kind};
use crate::cli::form::Form;
use crate::cli::host::Host;
use crate::cli::table::Table;
use crate::cli::ui::Ui;
use crate::worktree::volume::{self, Contents, Volume, VolumeError, VolumeStatus};

/// Make, see or remove a volume on which worktrees are copied on write
///
/// It is an XFS file system in a file, mounted on the data directory. It needs root.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, Subcommand)]
enum Act {
    /// Make the volume and mount it; one that was made before is only mounted
    Create {
        #[command(flatten)]
        place: Place,
        /// Let it hold at most this much; the file grows with what is on it
        #[arg(long, value_name = "SIZE", default_value = "20Gi")]
        size: Size,
    },
    /// Show the volume
    Status {
        #[command(flatten)]
        place: Place,
        /// Choose the form of the result
        #[arg(long, short, value_enum, default_value_t = Form::Text)]
        output: Form,
    },
    /// Unmount the volume and remove it
    Remove {
        #[command(flatten)]
        place: Place,
        /// Remove also what is on it
        #[arg(long)]
        discard: bool,
    },
}

#[derive(clap::Args, Debug)]
struct Place {
    /// Keep it in this file [default: beside the data directory, with `.xfs` added]
    #[arg(long, value_name = "FILE")]
    image: Option<PathBuf>,
}

/// A number of bytes, spelled `500Mi`, `20Gi` or `1Ti`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(u64);

impl FromStr for Size {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const EXPECTED: &str = "write a size such as 500Mi, 20Gi or 1Ti";
        let at = text.find(|c: char| !c.is_ascii_digit()).ok_or(EXPECTED)?;
        let (count, unit) = text.split_at(at);
        let shift = match unit {
            "Mi" => 20,
            "Gi" => 30,
            "Ti" => 40,
            _ => return Err(EXPECTED),
        };
        let count: u64 = count.parse().map_err(|_not_a_number| EXPECTED)?;
        count.checked_mul(1 << shift).map(Self).ok_or(EXPECTED)
    }
}

/// A volume as programs read it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    image: &'a Path,
    mount_point: &'a Path,
    is_mounted: bool,
    device: Option<&'a str>,
    size_bytes: u64,
    free_bytes: Option<u64>,
}

/// Does it.
pub(crate) fn run(args: &Args, host: &Host, ui: &mut Ui) -> CliResult {
    let data_dir = host.client()?.data_dir;
    let image_of = |place: &Place| {
        let beside = || PathBuf::from(format!("{}.xfs", data_dir.display()));
        place.image.clone().unwrap_or_else(beside)
    };
    match &args.act {
        Act::Create { place, size } => {
            let volume = Volume {
                image: image_of(place),
                mount_point: data_dir.clone(),
            };
            let status = volume::create(&volume, size.0).map_err(|error| failed(&error))?;
            ui.result(&text(&status))?;
            ui.say("mount it again after a restart of the host: run this command again");
        }
        Act::Status { place, output } => {
            let status = volume::status(&image_of(place)).map_err(|error| failed(&error))?;
            match output {
                Form::Json => ui.json(&shown(&status))?,
                Form::Text => ui.result(&text(&status))?,
            }
        }
        Act::Remove { place, discard } => {
            let contents = if *discard {
                Contents::Discard
            } else {
                Contents::MustBeEmpty
            };
            let image = image_of(place);
            volume::remove(&image, contents).map_err(|error| failed(&error))?;
            ui.say(format_args!("{} is removed", image.display()));
        }
    }
    Ok(Exit::Fine)
}

fn failed(error: &VolumeError) -> CliError {
    match error {
        VolumeError::Missing { .. } => {
            CliError::failed_to(Kind::NotFound, error).hint("`homeostat volume create` makes one")
        }
        VolumeError::Occupied { .. } => CliError::failed_to(Kind::Refused, error)
            .hint("`--discard` removes also what is on a volume"),
        VolumeError::NotRoot | VolumeError::Foreign { .. } => {
            CliError::failed_to(Kind::Refused, error)
        }
        VolumeError::Useless(refusal) => {
            CliError::failed_to(Kind::Refused, error).hint(refusal.reason.remedy())
        }
        VolumeError::TooSmall { .. }
        | VolumeError::NoProgram { .. }
        | VolumeError::Start { .. }
        | VolumeError::Failed { .. }
        | VolumeError::Access { .. } => CliError::failed_to(Kind::Usage, error),
    }
}

fn shown(status: &VolumeStatus) -> Shown<'_> {
    Shown {
        image: &status.volume.image,
        mount_point: &status.volume.mount_point,
        is_mounted: status.device.is_some(),
        device: status.device.as_deref(),
        size_bytes: status.size_bytes,
        free_bytes: status.free_bytes,
    }
}

fn text(status: &VolumeStatus) -> String {
    let mut table = Table::new(&["IMAGE", "MOUNTED ON", "DEVICE", "SIZE", "FREE"]);
    let device = status.device.clone();
    let mounted = device
        .as_ref()
        .map(|_| status.volume.mount_point.display().to_string());
    table.row([
        status.volume.image.display().to_string(),
        mounted.unwrap_or_default(),
        device.unwrap_or_default(),
        size(status.size_bytes),
        status.free_bytes.map(size).unwrap_or_default(),
    ]);
    table.render()
}

/// Whole units, rounded down.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{}Gi", b >> 30),
        b => format!("{}Mi", b >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_powers_of_two() {
        for (text, bytes) in [
            ("500Mi", Some(500 << 20)),
            ("1Ti", Some(1 << 40)),
            ("20", None),
            ("20GB", None),
            ("Gi", None),
            ("99999999999Ti", None),
        ] {
            assert_eq!(text.parse::<Size>().ok().map(|it| it.0), bytes, "{text}");
        }
        assert_eq!(
            (size(20 << 30), size(512 << 20)),
            ("20Gi".to_owned(), "512Mi".to_owned())
        );
    }
}
