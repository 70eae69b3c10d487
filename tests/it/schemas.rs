//! The generated JSON Schemas of `schemas/`. `cargo xtask schemas` blesses this test.

use std::collections::BTreeSet;
use std::path::Path;

use homeostat::manifest::schema;

#[test]
fn are_what_the_structs_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
    let assert = snapbox::Assert::new().action_env(snapbox::assert::DEFAULT_ACTION_ENV);
    let mut generated = BTreeSet::new();
    for (name, text) in schema::files() {
        let format = Some(snapbox::data::DataFormat::Text);
        let published = snapbox::Data::read_from(&root.join(&name), format);
        assert.eq(text, published.raw());
        generated.insert(name);
    }
    for entry in std::fs::read_dir(root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(generated.contains(&name), "schemas/{name} is nobody's");
    }
}
