//! The providers of one resource: the first one writes, all of them read, each known by the prefix of what it wrote.

use super::config::{EncryptionConfiguration, Keys, Kms, ProviderConfiguration};
use super::kms::{self, Plugin, PluginConfig};
use super::provider::Cipher;
use super::validation::group_resource;
use super::{ENCRYPTED, EncryptionConfigError, Seal};
use crate::Key;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Transformers by resource.
#[derive(Default)]
pub(super) struct Transformers(HashMap<(String, String), Transformer>);

/// The providers of a resource.
pub(super) struct Transformer {
    providers: Vec<Arc<Provider>>,
    /// Error where none of them knows a value.
    unknown: &'static str,
}

enum Provider {
    /// Values as they are.
    Identity,
    Keys {
        prefix: &'static str,
        /// The error for a value whose key's name is unknown.
        unknown: &'static str,
        keys: Vec<NamedCipher>,
    },
    Kms(Arc<Plugin>),
}

struct NamedCipher {
    /// The key's name and a colon.
    prefix: String,
    cipher: Cipher,
    seal: Seal,
}

/// The name that metrics give to plain values, and to values that no key opens.
const IDENTITY: &str = "identity";
const UNKNOWN: &str = "unknown";
const NO_PREFIX: &str = "no matching prefix found";
const NO_AES_KEY: &str = "no matching key was found for the provided AES transformer";
const NO_SECRETBOX_KEY: &str = "no matching key was found for the provided Secretbox transformer";
const IDENTITY_REFUSES: &str = "identity transformer tried to read encrypted data";

/// Upstream's words for a version whose gate is off by default.
const KMS_V1: &str = "KMSv1 is deprecated and will only receive security updates going forward. Use KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 feature.";

/// A stored value and its seal; `None` where it stays plain.
pub(super) type SealedOrPlain = Result<Option<(Vec<u8>, Seal)>, String>;

/// Prefixes that were tried, for metrics, and whether each was right.
pub(super) type Tried = Vec<(String, bool)>;

impl Transformers {
    /// Builds the transformers of a valid configuration; `start` begins a plugin.
    pub(super) fn build(
        config: &EncryptionConfiguration,
        mut start: impl FnMut(&PluginConfig) -> Arc<Plugin>,
    ) -> Result<Self, EncryptionConfigError> {
        let failed = |why: String| EncryptionConfigError(format!("error while building transformers: {why}"));
        let mut own = Self::default();
        for resource in &config.resources {
            let providers = resource
                .providers
                .iter()
                .map(|provider| Provider::of(provider, &mut start).map(Arc::new));
            let providers: Vec<_> = providers.collect::<Result<_, _>>().map_err(failed)?;
            for name in &resource.resources {
                let (group, plural) = group_resource(name);
                for (masking_group, masking) in [(group, "*"), ("*", "*")] {
                    if own
                        .0
                        .contains_key(&(masking_group.to_owned(), masking.to_owned()))
                    {
                        let (masked, by) = (text(group, plural), text(masking_group, masking));
                        return Err(failed(format!(
                            "resource {masked:?} is masked by earlier rule {by:?}"
                        )));
                    }
                }
                let entry = own.0.entry((group.to_owned(), plural.to_owned())).or_default();
                entry.providers.extend(providers.iter().cloned());
            }
        }
        Ok(own)
    }

    /// Reports whether others open everything that these write.
    pub(super) fn writes_are_opened_by(&self, others: &Self) -> bool {
        let mut names = self.0.keys().chain(others.0.keys());
        names.all(|(group, resource)| {
            let written = self.of(group, resource).map(Transformer::seal_of_writes);
            let other = others.of(group, resource);
            // Nothing else is needed for what is plain.
            written.is_none_or(|seal| seal == Seal::default() || other.is_some_and(|other| other.has(seal)))
        })
    }

    /// The transformer of a resource: its own, its group's, or that for all.
    pub(super) fn of(&self, group: &str, resource: &str) -> Option<&Transformer> {
        let at = |group: &str, resource: &str| self.0.get(&(group.to_owned(), resource.to_owned()));
        at(group, resource)
            .or_else(|| at(group, "*"))
            .or_else(|| at("*", "*"))
    }
}

/// A resource as `grYAMLString` writes it.
fn text(group: &str, resource: &str) -> String {
    match (group, resource) {
        ("", "*") => "*.".to_owned(),
        ("", resource) => resource.to_owned(),
        (group, resource) => format!("{resource}.{group}"),
    }
}

impl Default for Transformer {
    fn default() -> Self {
        Self {
            providers: Vec::new(),
            unknown: NO_PREFIX,
        }
    }
}

impl Transformer {
    /// The transformer of a resource without providers.
    pub(super) fn identity() -> Self {
        Self {
            providers: vec![Arc::new(Provider::Identity)],
            unknown: IDENTITY_REFUSES,
        }
    }

    pub(super) fn seal_of_writes(&self) -> Seal {
        match self.providers.first().map(|provider| &**provider) {
            Some(Provider::Keys { keys, .. }) => keys.first().map_or(Seal::default(), |key| key.seal),
            Some(Provider::Kms(plugin)) => plugin.current_seal(),
            Some(Provider::Identity) | None => Seal::default(),
        }
    }

    /// Reports whether one of the keys has written a value with this seal.
    pub(super) fn has(&self, seal: Seal) -> bool {
        self.providers.iter().any(|provider| match &**provider {
            Provider::Identity => seal == Seal::default(),
            Provider::Keys { keys, .. } => keys.iter().any(|key| key.seal == seal),
            Provider::Kms(plugin) => plugin.has(seal),
        })
    }

    /// The plugin that writes, if one does.
    pub(super) fn writing_plugin(&self) -> Option<&Arc<Plugin>> {
        match &**self.providers.first()? {
            Provider::Kms(plugin) => Some(plugin),
            Provider::Identity | Provider::Keys { .. } => None,
        }
    }

    /// The plugin that a stored value is for, and what lies behind its prefix.
    pub(super) fn plugin_of<'a>(&self, stored: &'a [u8]) -> Option<(&Arc<Plugin>, &'a [u8])> {
        self.providers.iter().find_map(|provider| match &**provider {
            Provider::Kms(plugin) => Some((plugin, stored.strip_prefix(plugin.prefix().as_bytes())?)),
            Provider::Identity | Provider::Keys { .. } => None,
        })
    }

    /// The prefixes that wrote, and the stored value; `None` where it stays plain. Fails only before a plugin has given its seed.
    pub(super) fn seal(&self, key: &Key, plain: &[u8]) -> (Vec<String>, SealedOrPlain) {
        let place = key.as_str().as_bytes();
        match self.providers.first().map(|provider| &**provider) {
            Some(Provider::Keys { prefix, keys, .. }) => {
                let Some(first) = keys.first() else {
                    return (Vec::new(), Ok(None));
                };
                let sealed = first.cipher.seal(plain, place);
                let stored = [prefix.as_bytes(), first.prefix.as_bytes(), &sealed].concat();
                (
                    vec![(*prefix).to_owned(), first.prefix.clone()],
                    Ok(Some((stored, first.seal))),
                )
            }
            Some(Provider::Kms(plugin)) => {
                let sealed = plugin.seal(plain, place);
                (vec![plugin.prefix().to_owned()], sealed.map(Some))
            }
            Some(Provider::Identity) | None => (vec![String::new()], Ok(None)),
        }
    }

    /// The value of a stored form. With `may_block` the thread waits for a plugin that has to decrypt a key.
    pub(super) fn open(
        &self,
        key: &Key,
        stored: &[u8],
        may_block: bool,
    ) -> (Tried, Result<(Vec<u8>, Seal), String>) {
        let (mut tried, mut errors) = (Tried::new(), Vec::new());
        for provider in &self.providers {
            let opened = match &**provider {
                // Encrypted values are for another provider.
                Provider::Identity if stored.starts_with(ENCRYPTED) => continue,
                Provider::Identity => {
                    tried.push((IDENTITY.to_owned(), true));
                    return (tried, Ok((stored.to_vec(), Seal::default())));
                }
                Provider::Keys {
                    prefix,
                    unknown,
                    keys,
                } => {
                    let Some(rest) = stored.strip_prefix(prefix.as_bytes()) else {
                        continue;
                    };
                    let opened = open_with(keys, unknown, rest, key, &mut tried);
                    tried.push(((*prefix).to_owned(), opened.is_ok()));
                    opened
                }
                Provider::Kms(plugin) => {
                    let Some(rest) = stored.strip_prefix(plugin.prefix().as_bytes()) else {
                        continue;
                    };
                    let opened = plugin.open(rest, key.as_str().as_bytes(), may_block);
                    tried.push((plugin.prefix().to_owned(), opened.is_ok()));
                    opened
                }
            };
            match opened {
                Ok(opened) => return (tried, Ok(opened)),
                Err(error) => errors.push(error),
            }
        }
        let error = match &errors[..] {
            [] => self.unknown.to_owned(),
            _ => aggregate(errors.clone()),
        };
        if errors.is_empty() {
            tried.push((UNKNOWN.to_owned(), false));
        }
        (tried, Err(error))
    }
}

fn open_with(
    keys: &[NamedCipher],
    unknown: &str,
    stored: &[u8],
    key: &Key,
    tried: &mut Tried,
) -> Result<(Vec<u8>, Seal), String> {
    let mut errors = Vec::new();
    for named in keys {
        let Some(rest) = stored.strip_prefix(named.prefix.as_bytes()) else {
            continue;
        };
        let opened = named.cipher.open(rest, key.as_str().as_bytes());
        tried.push((named.prefix.clone(), opened.is_ok()));
        match opened {
            Ok(plain) => return Ok((plain, named.seal)),
            Err(error) => errors.push(error.to_owned()),
        }
    }
    if errors.is_empty() {
        tried.push((UNKNOWN.to_owned(), false));
        return Err(unknown.to_owned());
    }
    Err(aggregate(errors))
}

/// Errors as `utilerrors.NewAggregate` writes several: each once.
pub(super) fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match &errors[..] {
        [one] => one.clone(),
        several => format!("[{}]", several.join(", ")),
    }
}

impl Provider {
    fn of(
        config: &ProviderConfiguration,
        start: impl FnMut(&PluginConfig) -> Arc<Plugin>,
    ) -> Result<Self, String> {
        let own = if let Some(keys) = &config.aesgcm {
            Self::with("k8s:enc:aesgcm:v1:", NO_AES_KEY, keys, Cipher::gcm)
        } else if let Some(keys) = &config.aescbc {
            Self::with("k8s:enc:aescbc:v1:", NO_AES_KEY, keys, Cipher::cbc)
        } else if let Some(keys) = &config.secretbox {
            Self::with("k8s:enc:secretbox:v1:", NO_SECRETBOX_KEY, keys, Cipher::secretbox)
        } else if let Some(kms) = &config.kms {
            return Self::with_plugin(kms, start);
        } else {
            config.identity.as_ref().map(|_| Self::Identity)
        };
        own.ok_or_else(|| "a provider cannot be used".to_owned())
    }

    fn with_plugin(own: &Kms, mut start: impl FnMut(&PluginConfig) -> Arc<Plugin>) -> Result<Self, String> {
        if own.api_version() == "v1" {
            return Err(KMS_V1.to_owned());
        }
        let timeout = own.timeout().ok_or("a timeout is not above zero")?;
        Ok(Self::Kms(start(&PluginConfig {
            name: own.name.clone(),
            socket: kms::socket(&own.endpoint)?,
            timeout,
        })))
    }

    fn with(
        prefix: &'static str,
        unknown: &'static str,
        keys: &Keys,
        cipher: fn(&[u8]) -> Option<Cipher>,
    ) -> Option<Self> {
        let named = keys.keys.iter().map(|key| {
            let secret = key.secret()?;
            let mut hasher = DefaultHasher::new();
            (prefix, &key.name, &secret).hash(&mut hasher);
            Some(NamedCipher {
                prefix: format!("{}:", key.name),
                cipher: cipher(&secret)?,
                seal: Seal::of_key(hasher.finish()),
            })
        });
        Some(Self::Keys {
            prefix,
            unknown,
            keys: named.collect::<Option<_>>()?,
        })
    }
}
