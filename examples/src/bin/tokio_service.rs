//! A service on tokio: counters that clients change over TCP, the same at all members.
//!
//! Run two members, with the ids 1 and 2, and connect to either with `nc 127.0.0.1 PORT`:
//! `cargo run -p spindle-examples --bin tokio_service -- --id 1 --listen 127.0.0.1:7501`.
//! A client writes `add NAME NUMBER` or `get NAME`. Ctrl-C stops a member in order.
use anyhow::{Context, Result, bail};
use clap::Parser;
use spindle::{Batch, Config, DeliveryStream, MemberId, SharedPublisher, SubgroupId};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// How long the end may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);
/// The longest line of a client.
const LINE_MAX: u64 = 1_000;

/// A member of the service.
#[derive(Parser)]
struct Arguments {
    /// The id of this member, which no other member has.
    #[arg(long)]
    id: u64,
    /// The number of members that create the group together.
    #[arg(long, default_value_t = 2)]
    members: u32,
    /// The address for clients.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// The state that the tasks of a member share.
struct Service {
    me: MemberId,
    requests: AtomicU64,
    /// The clients of this member that wait for a request to be delivered.
    waiting: Mutex<HashMap<u64, oneshot::Sender<i64>>>,
    counters: Mutex<HashMap<String, i64>>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let Arguments { id, members, listen, runtime_dir } = Arguments::parse();
    let mut config = Config::new("counters", members);
    config.id = Some(MemberId(id));
    config.runtime_dir = runtime_dir;
    // Joining blocks, so it has a thread of its own.
    let mut node = tokio::task::spawn_blocking(move || config.join()).await??;
    let (publisher, receiver) = (node.publisher("all")?.share(), node.receiver("all")?);
    let service = Arc::new(Service {
        me: node.id(),
        requests: AtomicU64::new(0),
        waiting: Mutex::default(),
        counters: Mutex::default(),
    });
    let group = node.start(|_: SubgroupId, _: &mut Batch<'_>| {})?;
    let mut deliveries = tokio::spawn(Arc::clone(&service).apply(receiver.into_stream()));

    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen at {listen}"))?;
    println!("listening at {}", listener.local_addr()?);
    loop {
        tokio::select! {
            client = listener.accept() => {
                let (stream, _) = client?;
                tokio::spawn(Arc::clone(&service).serve(stream, publisher.clone()));
            }
            // The group has ended for this member: it was evicted, say.
            end = &mut deliveries => return end?,
            stop = tokio::signal::ctrl_c() => {
                stop?;
                break;
            }
        }
    }
    // Leaving waits until the others have what this member sent. The stream ends with it.
    tokio::task::spawn_blocking(move || group.leave(WAIT)).await??;
    deliveries.await?
}

impl Service {
    /// Applies the requests of all members, in the order that they all have.
    async fn apply(self: Arc<Self>, mut deliveries: DeliveryStream) -> Result<()> {
        while let Some(delivery) = deliveries.next().await {
            let delivery = match delivery {
                Ok(delivery) => delivery,
                Err(spindle::Ended::Left) => break,
                Err(ended) => return Err(ended.into()),
            };
            let text = String::from_utf8_lossy(&delivery.payload);
            let mut words = text.split(' ');
            let (Some(request), Some(name), Some(change)) = (words.next(), words.next(), words.next()) else {
                bail!("member {} sent {text:?}, which is no request", delivery.sender_id)
            };
            let total = {
                let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
                let counter = counters.entry(name.to_owned()).or_default();
                *counter = counter.wrapping_add(change.parse::<i64>()?);
                *counter
            };
            if delivery.sender_id == self.me
                && let Some(client) =
                    self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&request.parse()?)
            {
                let _ = client.send(total); // unless the client has gone
            }
        }
        Ok(())
    }

    /// Serves a client until it closes its connection, or breaks the protocol.
    async fn serve(self: Arc<Self>, mut stream: TcpStream, mut publisher: SharedPublisher) -> Result<()> {
        let (input, mut output) = stream.split();
        let (mut input, mut line) = (BufReader::new(input), String::new());
        while (&mut input).take(LINE_MAX).read_line(&mut line).await? > 0 {
            if line.len() as u64 == LINE_MAX {
                bail!("a client sent a line of {LINE_MAX} bytes or more");
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            let answer = match words[..] {
                ["add", name, number] => match number.parse::<i64>() {
                    Ok(number) => format!("{name} = {}\n", self.add(name, number, &mut publisher).await?),
                    Err(error) => format!("error: {number:?}: {error}\n"),
                },
                ["get", name] => {
                    let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
                    format!("{name} = {}\n", counters.get(name).copied().unwrap_or_default())
                }
                _ => "error: write add NAME NUMBER or get NAME\n".to_owned(),
            };
            output.write_all(answer.as_bytes()).await?;
            line.clear();
        }
        Ok(())
    }

    /// Sends a request through the group, and waits until this member has applied it.
    async fn add(&self, name: &str, number: i64, publisher: &mut SharedPublisher) -> Result<i64> {
        let request = self.requests.fetch_add(1, Ordering::Relaxed);
        let (tell, total) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).insert(request, tell);
        publisher.send_async(format!("{request} {name} {number}").as_bytes()).await?;
        total.await.context("the group has ended")
    }
}
