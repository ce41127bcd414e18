//! The images by name: their layers, and what containers of them run.

/// One image, under all the tags by which specs name it.
#[derive(Debug)]
pub(super) struct Image {
    /// Name in the registry, without its host.
    pub name: &'static str,
    pub host: &'static str,
    pub tags: &'static [&'static str],
    /// Members of the image's configuration besides labels and environment, as JSON.
    pub config: &'static str,
    /// Names of layers, the lowest first.
    pub layers: &'static [&'static str],
}

const HOST: &str = "registry.k8s.io";

const fn image(
    name: &'static str,
    tags: &'static [&'static str],
    config: &'static str,
    layers: &'static [&'static str],
) -> Image {
    Image {
        name,
        host: HOST,
        tags,
        config,
        layers,
    }
}

/// All of them. Layers that several have are unpacked once by a node.
pub(super) const IMAGES: &[Image] = &[
    image(
        "e2e-test-images/agnhost",
        &["2.66.1", "2.55"],
        r#"{"Entrypoint": ["/agnhost"], "Cmd": ["pause"]}"#,
        &["root", "agnhost"],
    ),
    image(
        "e2e-test-images/nautilus",
        &["1.8"],
        r#"{"Entrypoint": ["/agnhost"], "Cmd": ["test-webserver"]}"#,
        &["root", "agnhost", "nautilus"],
    ),
    image(
        "e2e-test-images/kitten",
        &["1.8"],
        r#"{"Entrypoint": ["/agnhost"], "Cmd": ["test-webserver"]}"#,
        &["root", "agnhost", "kitten"],
    ),
    image(
        "e2e-test-images/glibc-dns-testing",
        &["2.1.1"],
        r#"{"Cmd": ["/bin/bash"]}"#,
        &["root"],
    ),
    image(
        "e2e-test-images/nginx",
        &["1.27.0-2", "1.28.0-2"],
        r#"{"Cmd": ["nginx", "-g", "daemon off;"]}"#,
        &["root"],
    ),
    image(
        "e2e-test-images/busybox",
        &["1.37.0-2", "1.36.1-1"],
        r#"{"Cmd": ["sh"]}"#,
        &["busybox"],
    ),
    image(
        "e2e-test-images/nonewprivs",
        &["1.4"],
        r#"{"Cmd": ["nnp"]}"#,
        &["busybox", "nonewprivs"],
    ),
    image(
        "e2e-test-images/sample-apiserver",
        &["1.29.2"],
        r#"{"Entrypoint": ["/sample-apiserver"]}"#,
        &["busybox", "sample-apiserver"],
    ),
    image(
        "etcd",
        &["3.7.0-0"],
        r#"{"Cmd": ["/usr/local/bin/etcd"]}"#,
        &["busybox", "etcd"],
    ),
    image(
        "pause",
        &["3.10.2"],
        r#"{"Entrypoint": ["/pause", "pause"], "User": "65535:65535"}"#,
        &["pause"],
    ),
];

impl Image {
    /// The names by which specs know it.
    pub(super) fn references(&self) -> impl Iterator<Item = String> {
        let Self { host, name, .. } = self;
        self.tags.iter().map(move |tag| format!("{host}/{name}:{tag}"))
    }
}

/// Names of all images.
pub(super) fn references() -> Vec<String> {
    IMAGES.iter().flat_map(Image::references).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_have_configurations_and_layers_that_are_made() {
        for image in IMAGES {
            let config: serde_json::Value = serde_json::from_str(image.config).expect("JSON");
            assert!(config.is_object(), "{}", image.name);
            for layer in image.layers {
                assert!(super::super::layers::is_made(layer), "{}: {layer}", image.name);
            }
        }
    }
}
