//! The keys of ConfigMaps and Secrets as files.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, KeyToPath, Secret};

use super::{Files, bits};
use crate::VolumeError;
use crate::atomic_writer::FileContent;

/// Keys to show, with their paths and modes.
pub(super) struct Wanted<'a> {
    kind: &'static str,
    items: Option<&'a [KeyToPath]>,
    mode: Option<i32>,
    optional: bool,
}

impl<'a> Wanted<'a> {
    pub(super) fn new(
        kind: &'static str,
        items: &'a Option<Vec<KeyToPath>>,
        mode: Option<i32>,
        optional: bool,
    ) -> Self {
        Self {
            kind,
            items: items.as_deref().filter(|items| !items.is_empty()),
            mode,
            optional,
        }
    }
}

/// Adds a file for each key that is wanted.
pub(super) fn project(
    files: &mut Files<'_>,
    data: &Data<'_>,
    wanted: &Wanted<'_>,
) -> Result<(), VolumeError> {
    let file = |data: Arc<[u8]>, mode| FileContent {
        data,
        mode: bits(mode),
        owner: None,
    };
    let Some(items) = wanted.items else {
        return data.entries().try_for_each(|(key, value)| {
            files.take(value.len())?;
            files
                .payload
                .insert(key.to_owned(), file(value.into(), wanted.mode));
            Ok(())
        });
    };
    let mut shared: HashMap<&str, Arc<[u8]>> = HashMap::new();
    for item in items {
        match data.get(&item.key) {
            Some(value) => {
                files.take(value.len())?;
                let value = shared.entry(&item.key).or_insert_with(|| value.into());
                let content = file(value.clone(), item.mode.or(wanted.mode));
                files.payload.insert(item.path.clone(), content);
            }
            None if wanted.optional => {}
            None => {
                return Err(VolumeError::KeyNotFound {
                    kind: wanted.kind,
                    key: item.key.clone(),
                });
            }
        }
    }
    Ok(())
}

/// The keys and values of an object.
pub(super) enum Data<'a> {
    ConfigMap(&'a ConfigMap),
    Secret(&'a Secret),
    Nothing,
}

impl<'a> Data<'a> {
    pub(super) fn of_config_map(
        object: Option<&'a ConfigMap>,
        name: &str,
        optional: bool,
    ) -> Result<Self, VolumeError> {
        object.map_or_else(
            || missing("configmap", name, optional),
            |object| Ok(Self::ConfigMap(object)),
        )
    }

    pub(super) fn of_secret(
        object: Option<&'a Secret>,
        name: &str,
        optional: bool,
    ) -> Result<Self, VolumeError> {
        object.map_or_else(
            || missing("secret", name, optional),
            |object| Ok(Self::Secret(object)),
        )
    }

    fn get(&self, key: &str) -> Option<&'a [u8]> {
        match self {
            Self::ConfigMap(object) => {
                let binary = object.binary_data.as_ref().and_then(|data| data.get(key));
                let text = || object.data.as_ref().and_then(|data| data.get(key));
                let binary = binary.map(|value| value.0.as_slice());
                binary.or_else(|| text().map(String::as_bytes))
            }
            Self::Secret(object) => {
                let value = object.data.as_ref().and_then(|data| data.get(key));
                value.map(|value| value.0.as_slice())
            }
            Self::Nothing => None,
        }
    }

    fn entries(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        let (text, binary) = match self {
            Self::ConfigMap(object) => (object.data.as_ref(), object.binary_data.as_ref()),
            Self::Secret(object) => (None, object.data.as_ref()),
            Self::Nothing => (None, None),
        };
        let text = text.into_iter().flatten();
        let binary = binary.into_iter().flatten();
        text.map(|(key, value)| (key.as_str(), value.as_bytes()))
            .chain(binary.map(|(key, value)| (key.as_str(), value.0.as_slice())))
    }
}

fn missing<'a>(kind: &'static str, name: &str, optional: bool) -> Result<Data<'a>, VolumeError> {
    if optional {
        return Ok(Data::Nothing);
    }
    Err(VolumeError::ObjectNotFound {
        kind,
        name: name.to_string(),
    })
}
