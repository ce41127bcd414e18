//! The facts about the built-in kinds, as `machinery/api/facts/README.md` describes them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

/// Everything that is read.
#[derive(Debug)]
pub struct Facts {
    /// By `file.Name`, as fields name them.
    types: HashMap<String, Type>,
    /// From `group/version/kind` (`v1/Pod`) to the type's name.
    kinds: HashMap<String, String>,
    resources: Vec<Resource>,
}

/// A Go type.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Type {
    #[serde(default)]
    pub kinds: Vec<String>,
    pub marker: Option<String>,
    /// The list or map that a type which is no struct stands for.
    pub is: Option<String>,
    #[serde(default)]
    pub fields: Vec<Field>,
}

/// A field of a struct.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Field {
    #[serde(default)]
    pub name: String,
    #[serde(rename = "type")]
    pub type_: String,
    #[serde(default)]
    pub inline: bool,
    #[serde(default)]
    pub number: u32,
    /// Values that the field may have, as published.
    #[serde(default, rename = "enum")]
    pub enumeration: Vec<String>,
}

/// A resource of a version.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub kind: String,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    #[serde(default)]
    pub subresources: Vec<Subresource>,
}

/// A subresource.
#[derive(Debug, Clone, Deserialize)]
pub struct Subresource {
    pub name: String,
}

impl Facts {
    /// Reads all files below `folder`.
    pub fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Package {
            types: HashMap<String, Type>,
        }
        #[derive(Deserialize)]
        struct Resources {
            resources: Vec<Resource>,
        }
        let mut facts = Self {
            types: HashMap::new(),
            kinds: HashMap::new(),
            resources: Vec::new(),
        };
        for entry in fs::read_dir(folder.join("types")).context("reading the facts")? {
            let path = entry?.path();
            let file = path
                .file_stem()
                .context("a file has a name")?
                .to_string_lossy()
                .into_owned();
            let package: Package =
                serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
            for (name, entry) in package.types {
                let name = format!("{file}.{name}");
                for kind in &entry.kinds {
                    facts.kinds.insert(kind.clone(), name.clone());
                }
                facts.types.insert(name, entry);
            }
        }
        let resources: Resources = serde_json::from_slice(&fs::read(folder.join("resources.json"))?)?;
        facts.resources = resources.resources;
        Ok(facts)
    }

    /// A type by the name that fields use.
    #[must_use]
    pub fn type_named(&self, name: &str) -> Option<&Type> {
        self.types.get(name)
    }

    /// The type of a whole object.
    #[must_use]
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<&Type> {
        self.types.get(self.kinds.get(&format!("{api_version}/{kind}"))?)
    }

    /// The name of the type of a whole object.
    #[must_use]
    pub fn kind_name(&self, api_version: &str, kind: &str) -> Option<&str> {
        self.kinds
            .get(&format!("{api_version}/{kind}"))
            .map(String::as_str)
    }

    /// Fields of a type as they stand in JSON: those of inline fields in their place.
    #[must_use]
    pub fn fields(&self, type_: &str) -> Vec<&Field> {
        let fields = self.types.get(type_).map_or(&[][..], |type_| &type_.fields);
        fields
            .iter()
            .flat_map(|field| match field.inline {
                true => self.fields(field.type_.trim_start_matches('*')),
                false => vec![field],
            })
            .collect()
    }

    /// The resource that objects of a kind are kept in.
    #[must_use]
    pub fn resource_of(&self, api_version: &str, kind: &str) -> Option<&Resource> {
        self.resources
            .iter()
            .find(|resource| resource.kind == kind && resource.api_version() == api_version)
    }

    /// Every resource of a GA version.
    #[must_use]
    pub fn resources(&self) -> &[Resource] {
        &self.resources
    }
}

impl Resource {
    /// The spelling in objects: `v1`, `apps/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// The path of its collection, within `namespace` where it has one.
    #[must_use]
    pub fn collection(&self, namespace: &str) -> String {
        let root = match self.group.as_str() {
            "" => format!("/api/{}", self.version),
            group => format!("/apis/{group}/{}", self.version),
        };
        match self.namespaced {
            true => format!("{root}/namespaces/{namespace}/{}", self.resource),
            false => format!("{root}/{}", self.resource),
        }
    }

    /// Reports whether a verb is served.
    #[must_use]
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|served| served == verb)
    }

    /// Reports whether a subresource is served.
    #[must_use]
    pub fn has_subresource(&self, name: &str) -> bool {
        self.subresources.iter().any(|served| served.name == name)
    }
}
