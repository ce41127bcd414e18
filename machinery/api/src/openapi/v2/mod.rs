//! OpenAPI v2: one document for everything served, rendered piece by piece from what v3 is made of.
//!
//! A definition is made in its v3 form, brought to v2 by [`downgrade`] and written as JSON or, through [`protobuf`], as a
//! gnostic document; only the bytes written stay. Parameters that many operations take stand once, under upstream's names.
//! Older clients' validation, `kubectl explain` and `apply` read it, and clients that watch definitions come and go.

mod downgrade;
mod other;
pub(super) mod protobuf;
pub(super) mod structural;

pub use super::section::Form;
pub use other::OtherDocument;

use super::paths::root;
use super::section::{Section, with_sections};
use super::{BuiltInKind, CustomKind, Document, Edition, bearer_token, descriptions, info};
use serde_json::json;

/// One group version: its built-in kinds and its custom ones.
#[derive(Debug)]
pub struct GroupVersionKinds<'a> {
    pub group: &'a str,
    pub version: &'a str,
    pub kinds: Vec<BuiltInKind<'a>>,
    pub custom: Vec<CustomKind<'a>>,
}

/// The whole document, with the kinds of other servers.
pub fn render(
    parts: &[GroupVersionKinds<'_>],
    others: &[&OtherDocument],
    server: &str,
    form: Form,
) -> Vec<u8> {
    let words = descriptions();
    let built_in = parts.iter().filter(|part| !part.kinds.is_empty());
    let group_versions: Vec<_> = built_in.map(|part| (part.group, part.version)).collect();
    let mut document = Document::new(&words, &group_versions, form, Edition::V2);
    for part in parts {
        document.add_group_version(part.group, part.version, &part.kinds, &part.custom);
    }
    add_roots(&mut document, group_versions.iter().map(|(group, _)| *group));
    let mut own_paths = document.paths;
    let mut definitions = Section::new("definitions", form);
    let mut named = other::Named::default();
    document.schemas.each(|name, mut schema| {
        downgrade::schema(&mut schema);
        definitions.push(&name, &schema);
        if others.iter().any(|other| other.defines(&name)) {
            named.insert(name, schema);
        }
    });
    let mut parameters = Section::new("parameters", form);
    for (name, parameter) in document.parameters.into_shared() {
        parameters.push(&name, &parameter);
        named.insert_parameter(name, parameter);
    }
    for other in others {
        named.add(other, |section, name, value| match section {
            protobuf::Section::Paths => own_paths.push(name, value),
            protobuf::Section::Definitions => definitions.push(name, value),
            protobuf::Section::Parameters => parameters.push(name, value),
        });
    }
    let small = json!({
        "swagger": "2.0",
        "info": info(server),
        "securityDefinitions": {"BearerToken": bearer_token()},
        "security": [{"BearerToken": []}],
    });
    let sections = [own_paths, definitions, parameters];
    match form {
        Form::Json => with_sections(&small, &sections),
        Form::Protobuf => {
            let bytes: usize = sections.iter().map(|own| own.bytes.len()).sum();
            let mut out = Vec::with_capacity(bytes + 1024);
            protobuf::document(&mut out, &small);
            for section in &sections {
                protobuf::section(&mut out, section.name, &section.bytes);
            }
            out
        }
    }
}

/// Adds the operations beside the API and those of the groups' discovery.
fn add_roots<'a>(document: &mut Document<'_>, groups: impl Iterator<Item = &'a str>) {
    let mut addresses: Vec<String> = root::ADDRESSES.iter().map(|own| (*own).to_owned()).collect();
    let named = groups.filter(|group| !group.is_empty());
    addresses.extend(named.map(|group| format!("apis/{group}")));
    // The versions of a group stand together.
    addresses.dedup();
    let routes = addresses.iter().filter_map(|address| root::at(address)).collect();
    document.add(routes);
}
