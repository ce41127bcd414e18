//! A container's environment: service variables, envFrom, env, and `$(NAME)` in its values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, Pod};
use node_volume::{NodeResources, ObjectSource, downward};

use super::StartError;
use crate::pods::{namespace, spec};

/// What the environment may refer to beside the pod itself.
#[derive(Clone, Copy)]
pub struct EnvSources<'a> {
    /// ConfigMaps and Secrets.
    pub objects: &'a dyn ObjectSource,
    /// The services' variables.
    pub services: &'a BTreeMap<String, String>,
    /// The pod's addresses.
    pub pod_ips: &'a [String],
    /// The node's address.
    pub node_ip: IpAddr,
    /// What the node has to give.
    pub node: &'a NodeResources,
}

impl std::fmt::Debug for EnvSources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvSources")
            .field("pod_ips", &self.pod_ips)
            .finish_non_exhaustive()
    }
}

/// The environment in the order it is declared; later names win.
pub async fn environment(
    pod: &Pod,
    container: &Container,
    sources: EnvSources<'_>,
) -> Result<Vec<(String, String)>, StartError> {
    let mut known = BTreeMap::new();
    from_objects(&mut known, pod, container, sources).await?;
    let mut declared: Vec<(String, String)> = Vec::new();
    for variable in container.env.iter().flatten() {
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match referred(pod, container, variable, source, sources).await? {
                Some(value) => value,
                None => continue,
            },
            (value, None) => expand(value.as_deref().unwrap_or_default(), |name| {
                let own = declared
                    .iter()
                    .rev()
                    .find(|(known, _)| known == name)
                    .map(|(_, value)| value);
                own.or_else(|| known.get(name))
                    .or_else(|| sources.services.get(name))
                    .cloned()
            }),
        };
        declared.retain(|(name, _)| *name != variable.name);
        declared.push((variable.name.clone(), value));
    }
    let mut all: BTreeMap<String, String> = sources.services.clone();
    all.extend(known);
    declared.iter().for_each(|(name, _)| drop(all.remove(name)));
    Ok(all.into_iter().chain(declared).collect())
}

async fn from_objects(
    known: &mut BTreeMap<String, String>,
    pod: &Pod,
    container: &Container,
    sources: EnvSources<'_>,
) -> Result<(), StartError> {
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.clone().unwrap_or_default();
        if let Some(wanted) = &source.config_map_ref {
            let found = sources
                .objects
                .config_map(namespace(pod), &wanted.name)
                .await
                .map_err(StartError::config)?;
            match found {
                Some(found) => known.extend(
                    found
                        .data
                        .into_iter()
                        .flatten()
                        .map(|(key, value)| (format!("{prefix}{key}"), value)),
                ),
                None if wanted.optional == Some(true) => {}
                None => return Err(not_found("configmap", &wanted.name)),
            }
        }
        if let Some(wanted) = &source.secret_ref {
            let found = sources
                .objects
                .secret(namespace(pod), &wanted.name)
                .await
                .map_err(StartError::config)?;
            match found {
                Some(found) => known.extend(
                    found
                        .data
                        .into_iter()
                        .flatten()
                        .map(|(key, value)| (format!("{prefix}{key}"), text(value.0))),
                ),
                None if wanted.optional == Some(true) => {}
                None => return Err(not_found("secret", &wanted.name)),
            }
        }
    }
    Ok(())
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8_lossy(&bytes).into_owned()
}

fn not_found(kind: &str, name: &str) -> StartError {
    StartError::config(format!("{kind} \"{name}\" not found"))
}

/// The value a variable refers to; `None` if it is optional and not there.
async fn referred(
    pod: &Pod,
    container: &Container,
    variable: &EnvVar,
    source: &EnvVarSource,
    sources: EnvSources<'_>,
) -> Result<Option<String>, StartError> {
    if let Some(field) = &source.field_ref {
        return pod_field(pod, &field.field_path, sources).map(Some);
    }
    if let Some(selector) = &source.resource_field_ref {
        let value = downward::resource_field(pod, selector, Some(container), sources.node);
        return value.map(Some).map_err(StartError::config);
    }
    if let Some(wanted) = &source.config_map_key_ref {
        let found = sources
            .objects
            .config_map(namespace(pod), &wanted.name)
            .await
            .map_err(StartError::config)?;
        let optional = wanted.optional == Some(true);
        let Some(found) = found else {
            return if optional {
                Ok(None)
            } else {
                Err(not_found("configmap", &wanted.name))
            };
        };
        let value = found.data.and_then(|mut data| data.remove(&wanted.key));
        return key_or(
            value,
            optional,
            &wanted.key,
            &format!("ConfigMap {}/{}", namespace(pod), wanted.name),
        );
    }
    if let Some(wanted) = &source.secret_key_ref {
        let found = sources
            .objects
            .secret(namespace(pod), &wanted.name)
            .await
            .map_err(StartError::config)?;
        let optional = wanted.optional == Some(true);
        let Some(found) = found else {
            return if optional {
                Ok(None)
            } else {
                Err(not_found("secret", &wanted.name))
            };
        };
        let value = found
            .data
            .and_then(|mut data| data.remove(&wanted.key))
            .map(|bytes| text(bytes.0));
        return key_or(
            value,
            optional,
            &wanted.key,
            &format!("Secret {}/{}", namespace(pod), wanted.name),
        );
    }
    Err(StartError::config(format!(
        "the source of variable {} is not provided by this node",
        variable.name
    )))
}

fn key_or(
    value: Option<String>,
    optional: bool,
    key: &str,
    place: &str,
) -> Result<Option<String>, StartError> {
    match value {
        None if !optional => Err(StartError::config(format!("couldn't find key {key} in {place}"))),
        value => Ok(value),
    }
}

fn pod_field(pod: &Pod, path: &str, sources: EnvSources<'_>) -> Result<String, StartError> {
    let spec = spec(pod);
    Ok(match path {
        "spec.nodeName" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => sources.node_ip.to_string(),
        "status.podIP" => sources.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => sources.pod_ips.join(","),
        other => downward::metadata_field(pod, other)
            .ok_or_else(|| StartError::config(format!("unsupported fieldPath: {other}")))?,
    })
}

/// Replaces `$(NAME)` by its value where there is one; `$$` stands for a dollar sign.
pub fn expand(input: &str, value: impl Fn(&str) -> Option<String>) -> String {
    let mut out = String::with_capacity(input.len());
    let mut rest = input;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(tail) = after.strip_prefix('$') {
            out.push('$');
            rest = tail;
        } else if let Some((name, tail)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match value(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&rest[at..at + name.len() + 3]),
            }
            rest = tail;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let value = |name: &str| (name == "A").then(|| "1".to_string());
        assert_eq!(expand(input, value), expected);
    }

    #[test]
    fn references_expand_as_upstreams() {
        check("x-$(A)-y", "x-1-y");
        check("$(B)", "$(B)");
        check("$$(A)", "$(A)");
        check("$(A", "$(A");
        check("$A 5$", "$A 5$");
    }
}
