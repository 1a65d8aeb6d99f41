# ruby-stomp (gem stomp). Orders: see adapter.py.
require "base64"
require "json"
require "stomp"

$stdout.sync = true

# One connection. The client's own thread fills the queues.
class Link
  def initialize(order)
    version = order["version"]
    headers = { "accept-version" => version, "host" => order["vhost"] }
    headers["heart-beat"] = order["heart_beat"].join(",") if order["heart_beat"] != [0, 0]
    headers = {} if version == "1.0"
    host = { login: order["login"], passcode: order["passcode"], host: order["host"], port: order["port"] }
    @client = Stomp::Client.new(hosts: [host], reliable: false, connect_headers: headers, connread_timeout: 5)
    # An ERROR in place of CONNECTED is no exception: the frame has to be looked at.
    frame = @client.connection_frame
    raise "refused: #{frame.headers['message']}" unless frame.command == "CONNECTED"

    @messages, @waiting = [], {}
  end

  def connected = @client.connection_frame.headers

  def send(order)
    headers = order["headers"].dup
    headers[:transaction] = order["transaction"] if order["transaction"]
    body = Base64.decode64(order["body"])
    body.force_encoding(order["text"] ? "UTF-8" : "BINARY")
    return @client.publish(order["destination"], body, headers) unless order["receipt"]

    settle { |done| @client.publish(order["destination"], body, headers) { |_| done << true } }
  end

  def settle
    done = Queue.new
    yield done
    Timeout.timeout(10) { done.pop }
  end

  def subscribe(order)
    id = order["id"]
    headers = order["headers"].merge("id" => id, "ack" => order["ack"])
    waiting = @waiting[id] = Queue.new
    @client.subscribe(order["destination"], headers) { |message| waiting << message }
  end

  def receive(order)
    waiting = @waiting[order["id"]]
    taken = Array.new([order["count"], waiting.size].min) do
      @messages << (message = waiting.pop)
      { handle: (@messages.size - 1).to_s, headers: message.headers, body: Base64.strict_encode64(message.body) }
    end
    { messages: taken }
  end

  def ack(order) = @client.ack(@messages[order["handle"].to_i], transaction(order))
  def nack(order) = @client.nack(@messages[order["handle"].to_i], transaction(order))
  def transaction(order) = order["transaction"] ? { transaction: order["transaction"] } : {}
  def unsubscribe(order) = @client.unsubscribe(order["destination"], "id" => order["id"])
  def begin(order) = @client.begin(order["transaction"])
  def commit(order) = @client.commit(order["transaction"])
  # Client#abort plays the messages to the listener again on its own, before the broker does: use what is below it.
  def abort(order) = @client.instance_variable_get(:@connection).abort(order["transaction"])

  def alive(_order) = { alive: @client.open? && @client.running }
  def close(_order) = @client.close(receipt: "bye")
end

links = {}
$stdin.each_line do |line|
  order = JSON.parse(line)
  begin
    answer =
      if order["do"] == "about"
        { library: Stomp::Version::STRING }
      elsif order["do"] == "open"
        links[order["link"]] = Link.new(order)
        links[order["link"]].connected
      else
        links.fetch(order["link"]).public_send(order["do"], order)
      end
    puts JSON.generate(ok: answer.is_a?(Hash) ? answer : {})
  rescue StandardError, Timeout::Error => e
    puts JSON.generate(error: "#{e.class}: #{e.message}".scrub)
  end
end
