//! A bank ledger whose total never changes by transfers, as a replicated object.
//!
//! Run it in three terminals: `cargo run -p spindle-examples --bin bank_ledger`. Each member opens an
//! account with 100, and transfers random amounts to the others.
use anyhow::{Result, ensure};
use clap::Parser;
use serde::{Deserialize, Serialize};
use spindle::Config;
use spindle_object::{Context, Replicated, Settings, commands};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// How long a call may wait for the other members.
const WAIT: Duration = Duration::from_secs(30);

/// A ledger that all members have.
#[derive(Parser)]
struct Arguments {
    /// The number of members that create the ledger together.
    #[arg(long, default_value_t = 3)]
    members: u32,
    /// The transfers of each member.
    #[arg(long, default_value_t = 200)]
    transfers: u64,
    /// The directory where the members meet.
    #[arg(long)]
    runtime_dir: Option<PathBuf>,
}

#[derive(Default, Serialize, Deserialize)]
struct Ledger {
    accounts: BTreeMap<u64, u64>,
    deposited: u64,
}

/// Why a transfer did not take place. It is part of the reply, so the call itself is done.
#[derive(Serialize, Deserialize, Debug)]
enum Declined {
    NoAccount,
    TooLittle { balance: u64 },
}

#[commands]
impl Ledger {
    #[command]
    fn deposit(&mut self, account: u64, amount: u64) -> u64 {
        let amount = amount.min(u64::MAX - self.deposited);
        self.deposited += amount;
        let balance = self.accounts.entry(account).or_default();
        *balance += amount;
        *balance
    }

    /// Transfers a random amount up to `most`. All members draw the same number.
    #[command]
    fn transfer(&mut self, context: &mut Context, from: u64, to: u64, most: u64) -> Result<u64, Declined> {
        let amount = context.random() % most.max(1);
        let balance = *self.accounts.get(&from).ok_or(Declined::NoAccount)?;
        if !self.accounts.contains_key(&to) {
            return Err(Declined::NoAccount);
        }
        let left = balance.checked_sub(amount).ok_or(Declined::TooLittle { balance })?;
        self.accounts.insert(from, left);
        *self.accounts.entry(to).or_default() += amount;
        Ok(amount)
    }

    /// The invariant: transfers neither create nor destroy money.
    fn is_balanced(&self) -> bool {
        self.accounts.values().sum::<u64>() == self.deposited
    }
}

fn main() -> Result<()> {
    let Arguments { members, transfers, runtime_dir } = Arguments::parse();
    let mut config = Config::new("ledger", members);
    config.runtime_dir = runtime_dir;
    config.suspect_after = Some(Duration::from_secs(5));
    eprintln!("waiting for the other members");
    let (group, ledger) = Replicated::join(config, "all", Ledger::default(), Settings::default())?;
    let me = ledger.member().0;
    ledger.call(&LedgerCalls::deposit(me, 100), WAIT)?;

    let (mut done, mut declined) = (0, 0);
    for i in 0..transfers {
        let accounts: Vec<u64> = ledger.read(|ledger| ledger.accounts.keys().copied().collect())?;
        let to = accounts[i as usize % accounts.len()];
        match ledger.call(&LedgerCalls::transfer(me, to, 60), WAIT)? {
            Ok(_) => done += 1,
            Err(_) => declined += 1,
        }
        ensure!(ledger.read(Ledger::is_balanced)?, "money was created or destroyed");
    }
    println!("{done} transfers done, {declined} declined");

    // A line of input asks for the accounts; its end leaves.
    for line in io::stdin().lines() {
        line?;
        let (accounts, total) = ledger.read_latest(|ledger| (ledger.accounts.len(), ledger.deposited), WAIT)?;
        println!("{accounts} accounts with {total}, digest {:016x}", ledger.digest());
    }
    drop(ledger);
    group.leave(WAIT)?;
    Ok(())
}
