//! Runs the kubelet with a containerd of its own, and nothing else:
//! `kubelet KUBECONFIG NODE NODE_IP DATA_DIR BASE_PROGRAM`. The network's configuration must lie in `DATA_DIR/cni`.

use std::path::PathBuf;

use kube::config::{KubeConfigOptions, Kubeconfig};
use machinery_runtime::Runtime;
use node_cri::CriClient;
use node_kubelet::containerd::config::ContainerdConfig;
use node_kubelet::containerd::{Containerd, instance};
use node_kubelet::images::base;
use node_kubelet::{Kubelet, KubeletConfig};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [kubeconfig, node, ip, data, program] = arguments.as_slice() else {
        return Err("usage: kubelet KUBECONFIG NODE NODE_IP DATA_DIR BASE_PROGRAM".into());
    };
    let data = PathBuf::from(data);
    instance::join_namespace(&data.join("containerd"))?;
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let program = std::fs::read(program)?;
    let work = run(kubeconfig, node, ip.parse()?, data, program);
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

async fn run(
    kubeconfig: &str,
    node: &str,
    ip: std::net::IpAddr,
    data: PathBuf,
    program: Vec<u8>,
) -> Result<(), Failure> {
    let runtime = Runtime::real();
    let containerd = ContainerdConfig {
        directory: data.join("containerd"),
        sandbox_image: base::PAUSE_IMAGE.into(),
        cni_bin_dir: "/usr/lib/cni".into(),
        cni_conf_dir: data.join("cni"),
        runtime: "/usr/sbin/runc".into(),
        cgroup_driver: node_sys::cgroup::CgroupDriver::default(),
    };
    let mut loaded = kube::Config::from_custom_kubeconfig(
        Kubeconfig::read_from(kubeconfig)?,
        &KubeConfigOptions::default(),
    )
    .await?;
    loaded.read_timeout = None;
    let client = kube::Client::try_from(loaded)?;
    let client_ca = Some(data.join("client-ca.crt")).filter(|path| path.is_file());
    let config = KubeletConfig {
        client_ca,
        node_name: node.into(),
        node_ip: ip,
        container_runtime_endpoint: containerd.socket(),
        ..KubeletConfig::for_data_dir(data.clone())
    };
    let container_runtime = async {
        let containerd = Containerd::ensure(&runtime, containerd).await?;
        let cri = CriClient::new(containerd.socket());
        runtime.spawn("containerd", containerd.supervise());
        base::ensure(&runtime, &cri, &data.join("images"), &program, "amd64").await?;
        Ok::<_, Failure>(())
    };
    let _kubelet = Kubelet::start(runtime.clone(), config, client, container_runtime).await?;
    std::future::pending().await
}
