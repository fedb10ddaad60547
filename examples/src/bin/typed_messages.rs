//! Typed messages: a small exchange whose orders are values of an enum, not bytes.
//!
//! Run it in two terminals, with the ids 1 and 2, and type orders such as `buy ACME 100`,
//! `sell ACME 40` and `cancel ACME`:
//! `cargo run -p spindle-examples --bin typed_messages -- --id 1`.
//! Both terminals print the same positions in the same order. Ctrl-D leaves.
use anyhow::{Result, bail};
use clap::Parser;
use serde::{Deserialize, Serialize};
use spindle::typed::{Schema, decode};
use spindle::{Config, MemberId, ReceiveError};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);

/// An exchange of several terminals.
#[derive(Parser)]
struct Arguments {
    /// The id of this member, which no other member has.
    #[arg(long)]
    id: u64,
    /// The number of members that create the exchange together.
    #[arg(long, default_value_t = 2)]
    members: u32,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

/// The messages. The symbol is borrowed: from the input when an order is sent, and from the ring
/// of its sender when it is received. So neither side copies it.
#[derive(Serialize, Deserialize, Debug)]
enum Order<'a> {
    Buy { symbol: &'a str, count: u32 },
    Sell { symbol: &'a str, count: u32 },
    Cancel { symbol: &'a str },
}

impl Schema for Order<'_> {
    /// A change of the enum takes the next number.
    const SCHEMA: u32 = 1;
}

fn main() -> Result<()> {
    let Arguments { id, members, runtime_dir } = Arguments::parse();
    let mut config = Config::new("exchange", members);
    config.id = Some(MemberId(id));
    config.runtime_dir = runtime_dir;
    let mut node = config.join()?;
    let (mut publisher, mut receiver) = (node.publisher("all")?, node.receiver("all")?);
    let group = node.start(|_: spindle::SubgroupId, _: &mut spindle::Batch<'_>| {})?;

    // The input has a thread of its own, because a read waits for as long as it likes.
    let input = thread::spawn(move || -> Result<()> {
        for line in io::stdin().lock().lines() {
            match parse(&line?) {
                Ok(order) => publisher.send_typed(&order, WAIT)?,
                Err(error) => eprintln!("{error}"),
            }
        }
        Ok(()) // dropping the publisher tells the others that this member has finished
    });

    let mut positions: BTreeMap<String, i64> = BTreeMap::new();
    let mut out = io::stdout().lock();
    loop {
        match receiver.receive(WAIT) {
            Ok(mut messages) => {
                for message in messages.iter() {
                    match decode(&message) {
                        Ok(order) => writeln!(out, "{}", apply(&mut positions, &order))?,
                        Err(error) => eprintln!("{error}"), // a member that runs another version
                    }
                }
                out.flush()?;
            }
            Err(ReceiveError::TimedOut { .. }) => {}
            Err(ReceiveError::Finished) => break,
            Err(error) => return Err(error.into()),
        }
    }
    input.join().expect("the thread does not panic")?;
    group.finish(WAIT)?;
    Ok(())
}

/// Changes a position, and returns the line that reports it.
fn apply(positions: &mut BTreeMap<String, i64>, order: &Order<'_>) -> String {
    let (symbol, change) = match *order {
        Order::Buy { symbol, count } => (symbol, i64::from(count)),
        Order::Sell { symbol, count } => (symbol, -i64::from(count)),
        Order::Cancel { symbol } => (symbol, -positions.get(symbol).copied().unwrap_or(0)),
    };
    let position = positions.entry(symbol.to_owned()).or_default();
    *position += change;
    format!("{symbol} {position}")
}

fn parse(line: &str) -> Result<Order<'_>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["buy", symbol, count] => Ok(Order::Buy { symbol, count: count.parse()? }),
        ["sell", symbol, count] => Ok(Order::Sell { symbol, count: count.parse()? }),
        ["cancel", symbol] => Ok(Order::Cancel { symbol }),
        _ => bail!("{line:?} is no order; write buy SYMBOL COUNT, sell SYMBOL COUNT or cancel SYMBOL"),
    }
}
