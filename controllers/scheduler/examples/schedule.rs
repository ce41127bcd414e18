//! Runs the scheduler alone against any API server: `cargo run --example schedule -- KUBECONFIG`.

use controllers_scheduler::{Configuration, Metrics, Settings, start};
use machinery_client::Client;
use machinery_runtime::Runtime;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args()
        .nth(1)
        .ok_or("the path of a kubeconfig is missing")?;
    let runtime = Runtime::real();
    let client = Client::from_kubeconfig(path.as_ref(), runtime.clone()).await?;
    let settings = Settings {
        configuration: Configuration::default(),
        metrics: Metrics::new()?,
    };
    let _running = start(client, runtime, settings);
    std::future::pending().await
}
