//! `schemas/` holds what `manifest::schema` generates, byte for byte. `SNAPSHOTS=overwrite`, which
//! is what `cargo xtask schemas` sets, writes it anew.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use homeostat::manifest::schema;

#[test]
fn are_what_the_structs_say() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let generated: BTreeMap<String, String> = schema::files().into_iter().collect();
    if overwrite() {
        fs::create_dir_all(&folder).expect("schemas/ can be made");
        for (name, text) in &generated {
            fs::write(folder.join(name), text).expect("schemas/ can be written");
        }
    }
    let entries = folder.read_dir().expect("schemas/ can be listed");
    let written: BTreeMap<String, String> = entries
        .map(|entry| {
            let entry = entry.expect("schemas/ can be listed");
            let text = fs::read_to_string(entry.path()).expect("a schema can be read");
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    for (name, text) in &generated {
        let fresh = written.get(name) == Some(text);
        assert!(
            fresh,
            "schemas/{name} is stale: `cargo xtask schemas` writes it"
        );
    }
    for name in written.keys() {
        let known = generated.contains_key(name);
        assert!(known, "schemas/{name} is generated from nothing: delete it");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the switch that blesses every golden"
)]
fn overwrite() -> bool {
    std::env::var("SNAPSHOTS").is_ok_and(|action| action == "overwrite")
}
