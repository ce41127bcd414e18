//! A container's environment: service variables, envFrom, and env.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, Container, EnvVar, EnvVarSource, Pod, SecretKeySelector,
};
use node_volume::{NodeResources, ObjectSource, downward};

use super::StartError;
use super::arguments::{Argument, ArgumentRoom};
use super::control::create_failed;
use super::env_files::EnvFiles;
use crate::pods::{namespace, spec};

/// Sources of variables besides the pod itself.
#[derive(Clone, Copy)]
pub(crate) struct EnvSources<'a> {
    /// ConfigMaps and Secrets.
    pub(crate) objects: &'a dyn ObjectSource,
    /// Files in the pod's volumes.
    pub(crate) files: &'a EnvFiles,
    /// The services' variables.
    pub(crate) services: &'a BTreeMap<String, String>,
    /// The pod's addresses.
    pub(crate) pod_ips: &'a [String],
    /// The node's address.
    pub(crate) node_ip: IpAddr,
    /// Resources that pods may request.
    pub(crate) node: &'a NodeResources,
}

impl std::fmt::Debug for EnvSources<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnvSources")
            .field("pod_ips", &self.pod_ips)
            .finish_non_exhaustive()
    }
}

/// The environment in the order it is declared; later names win.
pub(crate) async fn environment(
    pod: &Pod,
    container: &Container,
    sources: EnvSources<'_>,
) -> Result<Vec<(String, String)>, StartError> {
    let mut room = ArgumentRoom::new();
    let mut defined = Defined::default();
    for (name, value) in sources.services {
        room.take(Argument::Variable(name), value.len())?;
        defined.give(&mut room, name.clone(), value.clone());
    }
    from_objects(&mut defined, &mut room, pod, container, sources).await?;
    for variable in container.env.iter().flatten() {
        let argument = Argument::Variable(&variable.name);
        let value = match (&variable.value, &variable.value_from) {
            (_, Some(source)) => match referred(pod, container, variable, source, sources).await? {
                Some(value) => {
                    room.take(argument, value.len())?;
                    value
                }
                None => continue,
            },
            (value, None) => room.expand(argument, value.as_deref().unwrap_or_default(), |name| {
                defined.value(name)
            })?,
        };
        defined.declare(&mut room, &variable.name, value);
    }
    Ok(defined.into_pairs())
}

/// Variables while they are defined, each found by its name.
#[derive(Default)]
struct Defined<'a> {
    /// The services' and the objects'.
    given: BTreeMap<String, String>,
    /// The container's own in their order; `None` where a later one has the name.
    declared: Vec<Option<(&'a str, String)>>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Defined<'a> {
    fn value(&self, name: &str) -> Option<&str> {
        let own = self.places.get(name).and_then(|at| self.declared[*at].as_ref());
        own.map(|(_, value)| value.as_str())
            .or_else(|| self.given.get(name).map(String::as_str))
    }

    fn give(&mut self, room: &mut ArgumentRoom, name: String, value: String) {
        let length = name.len();
        if let Some(earlier) = self.given.insert(name, value) {
            room.give_back(length, earlier.len());
        }
    }

    fn declare(&mut self, room: &mut ArgumentRoom, name: &'a str, value: String) {
        let earlier = match self.places.insert(name, self.declared.len()) {
            Some(earlier) => self.declared[earlier].take().map(|(_, value)| value),
            None => self.given.remove(name),
        };
        if let Some(earlier) = earlier {
            room.give_back(name.len(), earlier.len());
        }
        self.declared.push(Some((name, value)));
    }

    fn into_pairs(self) -> Vec<(String, String)> {
        let declared = self.declared.into_iter().flatten();
        self.given
            .into_iter()
            .chain(declared.map(|(name, value)| (name.to_owned(), value)))
            .collect()
    }
}

async fn from_objects(
    defined: &mut Defined<'_>,
    room: &mut ArgumentRoom,
    pod: &Pod,
    container: &Container,
    sources: EnvSources<'_>,
) -> Result<(), StartError> {
    let mut define = |prefix: &str, key: &str, value: &str| {
        let name = format!("{prefix}{key}");
        room.take(Argument::Variable(&name), value.len())?;
        defined.give(room, name, value.to_owned());
        Ok::<(), StartError>(())
    };
    for source in container.env_from.iter().flatten() {
        let prefix = source.prefix.as_deref().unwrap_or_default();
        if let Some(wanted) = &source.config_map_ref {
            let found = sources
                .objects
                .config_map(namespace(pod), &wanted.name)
                .await
                .map_err(StartError::config)?;
            match found {
                Some(found) => {
                    let mut data = found.data.iter().flatten();
                    data.try_for_each(|(key, value)| define(prefix, key, value))?;
                }
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
                Some(found) => {
                    let mut data = found.data.iter().flatten();
                    data.try_for_each(|(key, value)| define(prefix, key, text(&value.0)?))?;
                }
                None if wanted.optional == Some(true) => {}
                None => return Err(not_found("secret", &wanted.name)),
            }
        }
    }
    Ok(())
}

/// Bytes that are no text fail as in upstream's request to the runtime, with its words.
fn text(bytes: &[u8]) -> Result<&str, StartError> {
    std::str::from_utf8(bytes)
        .map_err(|_| create_failed(&"grpc: error while marshaling: string field contains invalid UTF-8"))
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
        return config_map_key(pod, wanted, sources).await;
    }
    if let Some(wanted) = &source.secret_key_ref {
        return secret_key(pod, wanted, sources).await;
    }
    if let Some(selector) = &source.file_key_ref {
        let value = sources.files.value(selector)?.map(text).transpose()?;
        return Ok(value.map(str::to_owned));
    }
    Err(StartError::config(format!(
        "the source of variable {} is not provided by this node",
        variable.name
    )))
}

async fn config_map_key(
    pod: &Pod,
    wanted: &ConfigMapKeySelector,
    sources: EnvSources<'_>,
) -> Result<Option<String>, StartError> {
    let found = sources.objects.config_map(namespace(pod), &wanted.name).await;
    let key = ObjectKey {
        kind: "ConfigMap",
        name: &wanted.name,
        key: &wanted.key,
        is_optional: wanted.optional == Some(true),
    };
    match found.map_err(StartError::config)? {
        None => key.without_object(),
        Some(found) => {
            let value = found.data.as_ref().and_then(|data| data.get(&wanted.key));
            key.value(pod, value.cloned())
        }
    }
}

async fn secret_key(
    pod: &Pod,
    wanted: &SecretKeySelector,
    sources: EnvSources<'_>,
) -> Result<Option<String>, StartError> {
    let found = sources.objects.secret(namespace(pod), &wanted.name).await;
    let key = ObjectKey {
        kind: "Secret",
        name: &wanted.name,
        key: &wanted.key,
        is_optional: wanted.optional == Some(true),
    };
    match found.map_err(StartError::config)? {
        None => key.without_object(),
        Some(found) => {
            let value = found.data.as_ref().and_then(|data| data.get(&wanted.key));
            let value = value.map(|bytes| text(&bytes.0)).transpose()?;
            key.value(pod, value.map(str::to_owned))
        }
    }
}

/// A key of an object that a variable gets its value from.
struct ObjectKey<'a> {
    kind: &'static str,
    name: &'a str,
    key: &'a str,
    is_optional: bool,
}

impl ObjectKey<'_> {
    fn without_object(&self) -> Result<Option<String>, StartError> {
        match self.is_optional {
            true => Ok(None),
            false => Err(not_found(&self.kind.to_lowercase(), self.name)),
        }
    }

    fn value(&self, pod: &Pod, value: Option<String>) -> Result<Option<String>, StartError> {
        if value.is_some() || self.is_optional {
            return Ok(value);
        }
        let Self { kind, name, key, .. } = self;
        let namespace = namespace(pod);
        Err(StartError::config(format!(
            "couldn't find key {key} in {kind} {namespace}/{name}"
        )))
    }
}

fn pod_field(pod: &Pod, path: &str, sources: EnvSources<'_>) -> Result<String, StartError> {
    let spec = spec(pod);
    Ok(match path {
        // Old clients call it by its former name.
        "spec.nodeName" | "spec.host" => spec.node_name.clone().unwrap_or_default(),
        "spec.serviceAccountName" => spec.service_account_name.clone().unwrap_or_default(),
        "status.hostIP" | "status.hostIPs" => sources.node_ip.to_string(),
        "status.podIP" => sources.pod_ips.first().cloned().unwrap_or_default(),
        "status.podIPs" => sources.pod_ips.join(","),
        other => downward::metadata_field(pod, other)
            .ok_or_else(|| StartError::config(format!("unsupported fieldPath: {other}")))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use async_trait::async_trait;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    use node_volume::VolumeError;
    use serde_json::{Value, json};

    /// Every ConfigMap holds one key, `big`, of 120 KiB.
    struct Api(Arc<ConfigMap>);

    impl Api {
        fn new() -> Self {
            let data = BTreeMap::from([("big".to_owned(), "x".repeat(120 << 10))]);
            Self(Arc::new(ConfigMap {
                data: Some(data),
                ..ConfigMap::default()
            }))
        }
    }

    #[async_trait]
    impl ObjectSource for Api {
        async fn config_map(&self, _: &str, _: &str) -> Result<Option<Arc<ConfigMap>>, VolumeError> {
            Ok(Some(self.0.clone()))
        }

        async fn secret(&self, _: &str, _: &str) -> Result<Option<Arc<Secret>>, VolumeError> {
            let secret = json!({"data": {"text": "dGV4dA==", "binary": "/w=="}});
            Ok(Some(Arc::new(serde_json::from_value(secret).unwrap())))
        }

        async fn token(&self, _: &node_volume::TokenRequest) -> Result<String, VolumeError> {
            Err(VolumeError::Source("none".into()))
        }

        async fn trust_anchors(&self, _: &node_volume::TrustAnchors) -> Result<Arc<[u8]>, VolumeError> {
            Err(VolumeError::Source("none".into()))
        }

        async fn pod_certificate(
            &self,
            _: &k8s_openapi::api::core::v1::Pod,
            _: &node_volume::ProjectionPlace,
        ) -> Result<Arc<node_volume::Credentials>, VolumeError> {
            Err(VolumeError::Source("none".into()))
        }

        async fn claim(
            &self,
            _: &str,
            _: &str,
        ) -> Result<Option<k8s_openapi::api::core::v1::PersistentVolumeClaim>, VolumeError> {
            Ok(None)
        }

        async fn persistent_volume(
            &self,
            _: &str,
        ) -> Result<Option<k8s_openapi::api::core::v1::PersistentVolume>, VolumeError> {
            Ok(None)
        }
    }

    async fn made(container: &Value) -> Result<Vec<(String, String)>, StartError> {
        let pod = serde_json::from_value(json!({"spec": {"containers": [container]}})).unwrap();
        let sources = EnvSources {
            objects: &Api::new(),
            files: &EnvFiles::default(),
            services: &BTreeMap::from([("S".to_owned(), "service".to_owned())]),
            pod_ips: &[],
            node_ip: [127, 0, 0, 1].into(),
            node: &NodeResources::default(),
        };
        environment(&pod, &spec(&pod).containers[0], sources).await
    }

    async fn check_refused(container: Value, expected: &str) {
        let error = made(&container).await.unwrap_err();
        assert_eq!(
            (error.reason, error.message.as_str()),
            ("CreateContainerConfigError", expected)
        );
    }

    const TOO_LARGE: &str =
        "arguments and environment are larger than 6291456 bytes together, the most that Linux takes";

    #[tokio::test]
    async fn environment_refers_to_what_is_declared_before_and_later_names_win() {
        let env = json!([
            {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)$(S)$(C)"}, {"name": "A", "value": "$(A)2"},
            {"name": "S", "value": "own"}, {"name": "C", "value": "$(A)$(S)"}
        ]);
        let made = made(&json!({"name": "c", "env": env})).await.unwrap();
        let made: Vec<(&str, &str)> = made
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(
            made,
            [("B", "1service$(C)"), ("A", "12"), ("S", "own"), ("C", "12own")]
        );
    }

    #[tokio::test]
    async fn environment_that_doubles_itself_is_refused_at_the_variable_that_grows_too_long() {
        // Not so many that a node without the bound would die of them.
        let mut env = vec![json!({"name": "E0", "value": "xxx"})];
        env.extend((1..24).map(|at| {
            let value = format!("$(E{before})$(E{before})", before = at - 1);
            json!({"name": format!("E{at}"), "value": value})
        }));
        let container = json!({"name": "c", "env": env});
        check_refused(
            container,
            "environment variable \"E16\" is longer than 131072 bytes, the most that Linux takes",
        )
        .await;
    }

    #[tokio::test]
    async fn environment_of_a_secret_that_is_no_text_fails_as_upstreams_create() {
        let key = |key: &str| json!({"name": "V", "valueFrom": {"secretKeyRef": {"name": "s", "key": key}}});
        let container = json!({"name": "c", "env": [key("text")]});
        let made = made(&container).await.unwrap();
        assert!(made.contains(&("V".to_owned(), "text".to_owned())), "{made:?}");
        for container in [
            json!({"name": "c", "env": [key("binary")]}),
            json!({"name": "c", "envFrom": [{"secretRef": {"name": "s"}}]}),
        ] {
            let error = super::tests::made(&container).await.unwrap_err();
            let words = "grpc: error while marshaling: string field contains invalid UTF-8";
            assert_eq!(
                (error.reason, error.message.as_str()),
                ("CreateContainerError", words)
            );
        }
    }

    #[tokio::test]
    async fn environment_variable_that_is_replaced_takes_no_room() {
        let source = json!({"configMapKeyRef": {"name": "m", "key": "big"}});
        let one = json!({"name": "V", "valueFrom": source});
        let env: Vec<Value> = std::iter::repeat_n(one, 60).collect();
        let from: Vec<Value> = std::iter::repeat_n(json!({"configMapRef": {"name": "m"}}), 60).collect();
        made(&json!({"name": "c", "env": env, "envFrom": from}))
            .await
            .unwrap();
    }

    #[tokio::test]
    async fn environment_of_variables_that_replace_one_another_is_bounded() {
        let from: Vec<Value> = std::iter::repeat_n(json!({"configMapRef": {"name": "m"}}), 1_000).collect();
        check_refused(
            json!({"name": "c", "envFrom": from}),
            "environment variable \"big\": variables that replace one another have more than 25165824 bytes",
        )
        .await;
    }

    #[tokio::test]
    async fn environment_of_one_large_key_under_many_names_is_refused() {
        let source = json!({"configMapKeyRef": {"name": "m", "key": "big"}});
        let env: Vec<Value> = (0..60)
            .map(|at| json!({"name": format!("V{at}"), "valueFrom": source}))
            .collect();
        made(&json!({"name": "c", "env": env[..51]})).await.unwrap();
        check_refused(
            json!({"name": "c", "env": env}),
            &format!("environment variable \"V51\": {TOO_LARGE}"),
        )
        .await;
        let from: Vec<Value> = (0..60)
            .map(|at| json!({"prefix": format!("P{at}"), "configMapRef": {"name": "m"}}))
            .collect();
        let container = json!({"name": "c", "envFrom": from});
        check_refused(
            container,
            &format!("environment variable \"P51big\": {TOO_LARGE}"),
        )
        .await;
    }
}
