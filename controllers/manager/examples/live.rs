//! Runs the controllers against any API server: `live <kubeconfig> [controller…]`. For trying one out by hand.

use controllers_manager::manager::Selection;
use controllers_manager::{Config, ControllerContext, ControllerManager};
use machinery_client::{Client, Informers};
use machinery_runtime::Runtime;
use std::path::PathBuf;
use std::sync::Arc;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt()
        .with_env_filter("info,controllers_manager=debug,machinery_reconcile=debug")
        .init();
    let mut args = std::env::args().skip(1);
    let kubeconfig = PathBuf::from(args.next().ok_or("which kubeconfig?")?);
    let names: Vec<String> = args.collect();
    let runtime = Runtime::real();
    let client = Client::from_kubeconfig(&kubeconfig, runtime.clone()).await?;
    let informers = Informers::new(client.clone(), runtime.clone());
    let identities = Arc::new(move |name: &str| client.clone().with_user_agent(name));
    let config = Config {
        root_ca: "the CA of this cluster".to_owned(),
        ..Config::default()
    };
    let context = ControllerContext::new(runtime.clone(), informers, identities, config);
    let selection = if names.is_empty() {
        Selection::Default
    } else {
        Selection::Only(names)
    };
    let manager = ControllerManager::start(&context, &selection);
    tokio::signal::ctrl_c().await?;
    manager.stopped().await;
    Ok(())
}
