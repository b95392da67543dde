// Messages between hosts as ns-3's TCP carries them: one connection for each pair, packets through queues at every port.
// Compiled by cppyy as it is read; packets.py calls `deliver`.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <deque>
#include <map>
#include <set>
#include <vector>

namespace ns3::fidelity
{

constexpr double kConnectS = 1.0; // all connections stand by then
constexpr uint16_t kPort = 9, kFirstPort = 10000;

struct Message
{
    int src, dst;
    uint32_t bytes;
    double late_s; // after all connections stand, if it waits for no other
    int waits = 0;
    std::vector<int> next;
    double end_s = -1;
};

struct Connection
{
    Ptr<Socket> sender;
    std::deque<int> sent; // messages, in the order that they were written
    uint64_t left = 0;    // bytes that the first of them still lacks
};

void Configure(int delayed_acks, int window)
{
    Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpCubic::GetTypeId()));
    Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
    Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(delayed_acks));
    Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1u << 30));
    Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(window));
    Config::SetDefault("ns3::TcpSocket::DelAckTimeout", TimeValue(MilliSeconds(40))); // Linux's
    Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200))); // Linux's; ns-3 waits a second
    Config::SetDefault("ns3::FqCoDelQueueDisc::Flows", UintegerValue(65536));
    Config::SetDefault("ns3::FqCoDelQueueDisc::MaxSize", StringValue("100000p"));
    Config::SetDefault("ns3::FqCoDelQueueDisc::Target", StringValue("1000s")); // fair queues only: nothing is dropped early
    Config::SetDefault("ns3::FqCoDelQueueDisc::Interval", StringValue("1000s"));
    Config::SetDefault("ns3::FifoQueueDisc::MaxSize", StringValue("100p"));
    Ipv4AddressGenerator::Reset();
}

class Run
{
  public:
    Run(int nodes, bool fair)
        : m_fair(fair)
    {
        m_nodes.Create(nodes);
        InternetStackHelper().Install(m_nodes);
        m_addresses.SetBase("10.0.0.0", "255.255.255.252");
        m_address.resize(nodes);
    }

    void Cable(int a, int b, double rate_bps, double delay_s)
    {
        PointToPointHelper link;
        link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(uint64_t(rate_bps))));
        link.SetChannelAttribute("Delay", TimeValue(Seconds(delay_s)));
        link.SetQueue("ns3::DropTailQueue<Packet>", "MaxSize", StringValue("1p"));
        auto devices = link.Install(m_nodes.Get(a), m_nodes.Get(b));
        TrafficControlHelper queues;
        queues.SetRootQueueDisc(m_fair ? "ns3::FqCoDelQueueDisc" : "ns3::FifoQueueDisc");
        queues.Install(devices);
        auto given = m_addresses.Assign(devices);
        m_addresses.NewNetwork();
        m_address[a] = given.GetAddress(0);
        m_address[b] = given.GetAddress(1);
    }

    void Add(int src, int dst, uint32_t bytes, double late_s) { m_messages.push_back({src, dst, bytes, late_s, 0, {}, -1}); }

    void Wait(int message, int pred)
    {
        m_messages[message].waits++;
        m_messages[pred].next.push_back(message);
    }

    std::vector<double> Deliver()
    {
        Ipv4GlobalRoutingHelper::PopulateRoutingTables();
        for (auto& message : m_messages)
            Open(message.src, message.dst);
        for (size_t i = 0; i < m_messages.size(); i++)
            if (m_messages[i].waits == 0)
                Simulator::Schedule(Seconds(kConnectS + m_messages[i].late_s), &Run::Start, this, int(i));
        Simulator::Run();
        Simulator::Destroy();
        std::vector<double> ends;
        for (auto& message : m_messages)
            ends.push_back(message.end_s);
        return ends;
    }

  private:
    void Open(int src, int dst)
    {
        if (m_number.count({src, dst}))
            return;
        auto number = int(m_number.size());
        m_number[{src, dst}] = number;
        auto tcp = TcpSocketFactory::GetTypeId();
        if (m_listening.insert(dst).second)
        {
            auto listener = Socket::CreateSocket(m_nodes.Get(dst), tcp);
            listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), kPort));
            listener->Listen();
            listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeCallback(&Run::Accept, this));
        }
        auto sender = Socket::CreateSocket(m_nodes.Get(src), tcp);
        sender->Bind(InetSocketAddress(Ipv4Address::GetAny(), kFirstPort + number));
        Simulator::Schedule(Seconds(0), &Socket::Connect, sender, InetSocketAddress(m_address[dst], kPort));
        m_connections.push_back({sender, {}, 0});
    }

    void Accept(Ptr<Socket> socket, const Address& from)
    {
        m_of[socket] = InetSocketAddress::ConvertFrom(from).GetPort() - kFirstPort;
        socket->SetRecvCallback(MakeCallback(&Run::Receive, this));
    }

    void Start(int number)
    {
        auto& message = m_messages[number];
        auto& connection = m_connections[m_number[{message.src, message.dst}]];
        if (connection.sent.empty())
            connection.left = message.bytes;
        connection.sent.push_back(number);
        connection.sender->Send(Create<Packet>(message.bytes));
    }

    void Receive(Ptr<Socket> socket)
    {
        auto& connection = m_connections[m_of[socket]];
        while (auto packet = socket->Recv())
            for (uint64_t got = packet->GetSize(); got > 0;)
            {
                auto taken = std::min(got, connection.left);
                got -= taken;
                connection.left -= taken;
                if (connection.left == 0)
                    Finish(connection);
            }
    }

    void Finish(Connection& connection)
    {
        auto number = connection.sent.front();
        connection.sent.pop_front();
        if (!connection.sent.empty())
            connection.left = m_messages[connection.sent.front()].bytes;
        m_messages[number].end_s = Simulator::Now().GetSeconds() - kConnectS;
        for (int next : m_messages[number].next)
            if (--m_messages[next].waits == 0)
                Start(next);
    }

    bool m_fair;
    NodeContainer m_nodes;
    Ipv4AddressHelper m_addresses;
    std::vector<Ipv4Address> m_address; // of a host's one port
    std::vector<Message> m_messages;
    std::vector<Connection> m_connections;
    std::map<std::pair<int, int>, int> m_number;
    std::map<Ptr<Socket>, int> m_of;
    std::set<int> m_listening;
};
} // namespace ns3::fidelity
