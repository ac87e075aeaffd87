//! Complete XML documents, line by line: what DiskSPD 2.2 writes for the same run, composed by hand from its
//! published layout. Any change of an element, attribute, unit or number of digits is detected.

use super::*;

/// A read bucket and a write bucket of `<Iops>`: count, minimum, maximum, mean and deviation of the
/// latencies.
fn bucket(ms: u64, read: u64, write: u64, read_ms: [&str; 4], write_ms: [&str; 4]) -> String {
    let [r0, r1, r2, r3] = read_ms;
    let [w0, w1, w2, w3] = write_ms;
    format!(
        "<Bucket SampleMillisecond=\"{ms}\" Read=\"{read}\" Write=\"{write}\" Total=\"{}\" \
         ReadMinLatencyMilliseconds=\"{r0}\" ReadMaxLatencyMilliseconds=\"{r1}\" ReadAvgLatencyMilliseconds=\"{r2}\" ReadLatencyStdDev=\"{r3}\" \
         WriteMinLatencyMilliseconds=\"{w0}\" WriteMaxLatencyMilliseconds=\"{w1}\" WriteAvgLatencyMilliseconds=\"{w2}\" WriteLatencyStdDev=\"{w3}\"/>",
        read + write
    )
}

const NONE: [&str; 4] = ["0.000", "0.000", "0.000", "0.000"];

/// `<Iops>` of [`results`], which is the same for its one target, indented by `depth` spaces.
fn iops(depth: usize) -> String {
    let (one, three) = (["1.000", "1.000", "1.000", "0.000"], ["3.000", "3.000", "3.000", "0.000"]);
    let lines = [
        "<Iops>".to_owned(),
        "  <ReadIopsStdDev>0.500</ReadIopsStdDev>".to_owned(),
        "  <WriteIopsStdDev>0.500</WriteIopsStdDev>".to_owned(),
        "  <IopsStdDev>0.000</IopsStdDev>".to_owned(),
        format!("  {}", bucket(1000, 2, 0, one, NONE)),
        format!("  {}", bucket(2000, 1, 1, one, three)),
        "</Iops>".to_owned(),
    ];
    lines.iter().map(|l| format!("{}{l}\n", " ".repeat(depth))).collect()
}

/// The 108 buckets of `<Latency>`: three reads of 1 ms and a write of 3 ms.
fn percentiles() -> String {
    let bucket = |percentile: &str, total: &str| {
        format!(
            "      <Bucket>
        <Percentile>{percentile}</Percentile>
        <ReadMilliseconds>1.000</ReadMilliseconds>
        <WriteMilliseconds>3.000</WriteMilliseconds>
        <TotalMilliseconds>{total}</TotalMilliseconds>
      </Bucket>
"
        )
    };
    let whole = (0..=99).map(|p| bucket(&p.to_string(), if p <= 75 { "1.000" } else { "3.000" }));
    let nines = (1..=7).map(|n| bucket(&format!("99.{}", "9".repeat(n)), "3.000"));
    whole.chain(nines).chain([bucket("100", "3.000")]).collect()
}

/// Three processors: two in one group on one core, and one in another group, on another node and of another
/// class.
fn machine() -> SystemInfo {
    SystemInfo {
        computer_name: "lab".to_owned(),
        started: Some(951_868_799),
        governor: "performance".to_owned(),
        heterogeneous: true,
        processors: vec![
            Processor::default(),
            Processor { number: 1, ..Processor::default() },
            Processor { number: 65, core: 3, socket: 1, node: 2, class: 1 },
        ],
        ..SystemInfo::default()
    }
}

fn results() -> SpanResults {
    let shape = Some((2, MS(1000)));
    let (mut read, mut write) = (Tally::new(true, shape), Tally::new(true, shape));
    [100, 900, 1500].into_iter().for_each(|at| read.add(4096, MS(1), MS(at)));
    write.add(4096, MS(3), MS(1500));
    let target =
        TargetResults { path: "a&b.dat".to_owned(), size: 10 << 20, read, write, ..TargetResults::default() };
    let idle = CpuTimes { user: 0, kernel: 0, idle: 100, steal: 0 };
    let threads = vec![ThreadResults { targets: vec![target], ..ThreadResults::default() }];
    let cpu = [cpu(), vec![idle, idle]].concat();
    SpanResults { elapsed: MS(2000), threads, cpu, ..SpanResults::default() }
}

/// A processor of `<CpuUtilization>`, with its six numbers and four shares.
fn processor(numbers: [u32; 6], shares: [&str; 4]) -> String {
    let [socket, node, group, core, class, id] = numbers;
    let [usage, user, kernel, idle] = shares;
    format!(
        "      <CPU>
        <Socket>{socket}</Socket>
        <Node>{node}</Node>
        <Group>{group}</Group>
        <Core>{core}</Core>
        <EfficiencyClass>{class}</EfficiencyClass>
        <Id>{id}</Id>
        <UsagePercent>{usage}</UsagePercent>
        <UserPercent>{user}</UserPercent>
        <KernelPercent>{kernel}</KernelPercent>
        <IdlePercent>{idle}</IdlePercent>
      </CPU>
"
    )
}

#[test]
fn a_report_is_diskspds_line_by_line() {
    let profile = asked("-Rxml -L -D -d2 -W0 -C1 -w25 -b4K -o8 -Sh -g1000i -vs a&b.dat");
    let mut found = results();
    found.threads[0].waits.wait = 7;
    let busy = processor([0, 0, 0, 0, 0, 0], ["55.00", "30.00", "25.00", "45.00"]);
    let idle = ["0.00", "0.00", "0.00", "100.00"];
    let expected = format!(
        r#"<Results>
  <System>
    <ComputerName>lab</ComputerName>
    <Tool>
      <Version>causeway {version}</Version>
      <VersionDate></VersionDate>
    </Tool>
    <RunTime>2000/02/29 23:59:59 UTC</RunTime>
    <PowerScheme Name="performance" Guid=""/>
    <ProcessorTopology Heterogeneous="true">
      <Group Group="0" MaximumProcessors="2" ActiveProcessors="2" ActiveProcessorMask="0x3"/>
      <Group Group="1" MaximumProcessors="1" ActiveProcessors="1" ActiveProcessorMask="0x2"/>
      <Node Node="0">
        <Group Group="0" Mask="0x3"/>
      </Node>
      <Node Node="2">
        <Group Group="1" Mask="0x2"/>
      </Node>
      <Socket Socket="0">
        <Group Group="0" Mask="0x3"/>
      </Socket>
      <Socket Socket="1">
        <Group Group="1" Mask="0x2"/>
      </Socket>
      <Core Group="0" Core="0" Mask="0x3" EfficiencyClass="0"/>
      <Core Group="1" Core="3" Mask="0x2" EfficiencyClass="1"/>
    </ProcessorTopology>
  </System>
  <Profile>
    <Progress>0</Progress>
    <ResultFormat>xml</ResultFormat>
    <Verbose>false</Verbose>
    <VerboseStats>true</VerboseStats>
    <TimeSpans>
      <TimeSpan>
        <CompletionRoutines>false</CompletionRoutines>
        <MeasureLatency>true</MeasureLatency>
        <CalculateIopsStdDev>true</CalculateIopsStdDev>
        <DisableAffinity>false</DisableAffinity>
        <Duration>2</Duration>
        <Warmup>0</Warmup>
        <Cooldown>1</Cooldown>
        <ThreadCount>0</ThreadCount>
        <RequestCount>0</RequestCount>
        <IoBucketDuration>1000</IoBucketDuration>
        <RandSeed>0</RandSeed>
        <Targets>
          <Target>
            <Path>a&amp;b.dat</Path>
            <BlockSize>4096</BlockSize>
            <BaseFileOffset>0</BaseFileOffset>
            <SequentialScan>false</SequentialScan>
            <RandomAccess>false</RandomAccess>
            <TemporaryFile>false</TemporaryFile>
            <UseLargePages>false</UseLargePages>
            <DisableOSCache>true</DisableOSCache>
            <WriteThrough>true</WriteThrough>
            <WriteBufferContent>
              <Pattern>sequential</Pattern>
            </WriteBufferContent>
            <ParallelAsyncIO>false</ParallelAsyncIO>
            <StrideSize>4096</StrideSize>
            <InterlockedSequential>false</InterlockedSequential>
            <ThreadStride>0</ThreadStride>
            <MaxFileSize>0</MaxFileSize>
            <RequestCount>8</RequestCount>
            <WriteRatio>25</WriteRatio>
            <Throughput unit="IOPS">1000</Throughput>
            <ThreadsPerFile>1</ThreadsPerFile>
            <IOPriority>3</IOPriority>
            <Weight>1</Weight>
          </Target>
        </Targets>
      </TimeSpan>
    </TimeSpans>
  </Profile>
  <TimeSpan>
    <TestTimeSeconds>2.00</TestTimeSeconds>
    <ThreadCount>1</ThreadCount>
    <RequestCount>0</RequestCount>
    <ProcCount>3</ProcCount>
    <CpuUtilization>
{busy}{second}{third}      <Average>
        <UsagePercent>18.33</UsagePercent>
        <UserPercent>10.00</UserPercent>
        <KernelPercent>8.33</KernelPercent>
        <IdlePercent>81.67</IdlePercent>
      </Average>
    </CpuUtilization>
    <Latency ReadHistoBuckets="1" WriteHistoBuckets="1" TotalHistoBuckets="2">
      <AverageReadMilliseconds>1.000</AverageReadMilliseconds>
      <ReadLatencyStdev>0.000</ReadLatencyStdev>
      <AverageWriteMilliseconds>3.000</AverageWriteMilliseconds>
      <WriteLatencyStdev>0.000</WriteLatencyStdev>
      <AverageTotalMilliseconds>1.500</AverageTotalMilliseconds>
      <LatencyStdev>0.866</LatencyStdev>
{percentiles}    </Latency>
{all_iops}    <Thread>
      <Id>0</Id>
      <Target>
        <Path>a&amp;b.dat</Path>
        <BytesCount>16384</BytesCount>
        <FileSize>10485760</FileSize>
        <IOCount>4</IOCount>
        <ReadBytes>12288</ReadBytes>
        <ReadCount>3</ReadCount>
        <WriteBytes>4096</WriteBytes>
        <WriteCount>1</WriteCount>
        <AverageReadLatencyMilliseconds>1.000</AverageReadLatencyMilliseconds>
        <ReadLatencyStdev>0.000</ReadLatencyStdev>
        <AverageWriteLatencyMilliseconds>3.000</AverageWriteLatencyMilliseconds>
        <WriteLatencyStdev>0.000</WriteLatencyStdev>
        <AverageLatencyMilliseconds>1.500</AverageLatencyMilliseconds>
        <LatencyStdev>0.866</LatencyStdev>
{its_iops}      </Target>
      <WaitStatistics>
        <CompletionWait>7</CompletionWait>
        <ThrottleWait>0</ThrottleWait>
        <ThrottleSleep>0</ThrottleSleep>
        <Lookaside>0</Lookaside>
        <LookasideCompletion>0 0 0 0 0 0 0 0</LookasideCompletion>
      </WaitStatistics>
    </Thread>
  </TimeSpan>
</Results>
"#,
        version = env!("CARGO_PKG_VERSION"),
        second = processor([0, 0, 0, 0, 0, 1], idle),
        third = processor([1, 2, 1, 3, 1, 1], idle),
        percentiles = percentiles(),
        all_iops = iops(4),
        its_iops = iops(8),
    );
    same(&xml::report(&Report { profile: &profile, system: &machine(), spans: &[found] }), &expected);
}

/// Compares line by line, to report the differing line.
fn same(got: &str, expected: &str) {
    for (n, (got, expected)) in got.lines().zip(expected.lines()).enumerate() {
        assert_eq!(got, expected, "line {}", n + 1);
    }
    assert_eq!(got.len(), expected.len(), "one of them ends sooner");
}

/// The only `<Target>` of a profile, without the parts that all targets have in common.
fn target(words: &str) -> Vec<String> {
    let out = xml::profile(&asked(words));
    let lines = out.lines().map(str::trim);
    let inner = lines.skip_while(|l| *l != "<UseLargePages>false</UseLargePages>").skip(1);
    inner.take_while(|l| !l.starts_with("<MaxFileSize>")).map(str::to_owned).collect()
}

#[test]
fn what_a_target_may_have_is_where_diskspd_has_it() {
    let random = [
        "<DisableLocalCache>true</DisableLocalCache>",
        "<WriteBufferContent>",
        "<Pattern>random</Pattern>",
        "<RandomDataSource>",
        "<SizeInBytes>1048576</SizeInBytes>",
        "<FilePath>x</FilePath>",
        "</RandomDataSource>",
        "</WriteBufferContent>",
        "<ParallelAsyncIO>false</ParallelAsyncIO>",
        "<BurstSize>3</BurstSize>",
        "<ThinkTime>4</ThinkTime>",
        "<FileSize>1073741824</FileSize>",
        "<Random>8192</Random>",
        "<RandomRatio>30</RandomRatio>",
        "<Distribution>",
        "<Percent>",
        r#"<Range IO="90">10</Range>"#,
        r#"<Range IO="0">10</Range>"#,
        r#"<Range IO="10">80</Range>"#,
        "</Percent>",
        "</Distribution>",
        "<ThreadStride>0</ThreadStride>",
    ];
    assert_eq!(target("-rs30 -r8K -rdpct90/10:0/10 -Sr -Z1M,x -i3 -j4 -c1G f"), random);
    let interlocked = [
        "<WriteThrough>true</WriteThrough>",
        "<MemoryMappedIo>true</MemoryMappedIo>",
        "<FlushType>ViewOfFile</FlushType>",
        "<WriteBufferContent>",
        "<Pattern>zero</Pattern>",
        "</WriteBufferContent>",
        "<ParallelAsyncIO>false</ParallelAsyncIO>",
        "<StrideSize>65536</StrideSize>",
        "<InterlockedSequential>true</InterlockedSequential>",
        "<ThreadStride>0</ThreadStride>",
    ];
    assert_eq!(target("-si64K -t2 -Smw -Nv -Z f"), interlocked);
    // Bytes per millisecond are written without a unit.
    let bytes = xml::profile(&asked("-g7 -I1 f"));
    let end = "          <Throughput>7</Throughput>
          <ThreadsPerFile>1</ThreadsPerFile>
          <IOPriority>1</IOPriority>
          <Weight>1</Weight>
        </Target>
";
    assert!(bytes.contains(end), "{bytes}");
}

#[test]
fn what_a_time_span_may_have_is_where_diskspd_has_it() {
    let out = xml::profile(&asked("-F2 -O4 -a0,g1,1 -z3 -P9 -v f"));
    let lines: Vec<&str> = out.lines().map(str::trim).collect();
    let from = |first: &str, n: usize| {
        let at =
            lines.iter().position(|l| *l == first).unwrap_or_else(|| panic!("{first} is missing: {out}"));
        lines[at..at + n].to_vec()
    };
    let begin = [
        "<Progress>9</Progress>",
        "<ResultFormat>text</ResultFormat>",
        "<Verbose>true</Verbose>",
        "<TimeSpans>",
    ];
    assert_eq!(from("<Progress>9</Progress>", 4), begin);
    let middle = [
        "<ThreadCount>2</ThreadCount>",
        "<RequestCount>4</RequestCount>",
        "<IoBucketDuration>1000</IoBucketDuration>",
        "<RandSeed>3</RandSeed>",
        "<Affinity>",
        r#"<AffinityGroupAssignment Group="0" Processor="0"/>"#,
        r#"<AffinityGroupAssignment Group="1" Processor="1"/>"#,
        "</Affinity>",
        "<Targets>",
    ];
    assert_eq!(from("<ThreadCount>2</ThreadCount>", 9), middle);
}

#[test]
fn a_run_that_measured_nothing_says_so() {
    let (profile, found) = (asked("f"), SpanResults { elapsed: Duration::ZERO, ..results() });
    let out = xml::report(&Report { profile: &profile, system: &machine(), spans: &[found] });
    let end = "  <TimeSpan>
    <Error>The test was interrupted before the measurements began. No results are displayed.</Error>
  </TimeSpan>
</Results>
";
    assert!(out.ends_with(end), "{out}");
}
